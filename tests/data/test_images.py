"""Image sets from local files and from (mocked) downloads."""

import gzip
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import torch
from datasets import pvi_data

from pvi.data.images import CLOTHES, DIGITS, ImageError, Images, cifar10, fashion_mnist, joined, mnist, subset

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def idx(values):
    """An IDX file's bytes, uint8."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    return header + values.astype(np.uint8).tobytes()


def digits(rows=10_000, seed=0):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (rows, 28, 28)), generator.integers(0, 10, rows)


def write(folder, pixels, labels, name="mnist", stem="t10k"):
    (folder / name).mkdir(parents=True)
    for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
        (folder / name / f"{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(values), 1))


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No local files, an empty cache, no network."""
    monkeypatch.delenv("PVI_DATA", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def refused(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", refused)
    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", refused)
    return tmp_path / "torch/datasets"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "part", "counts"),
    [
        (mnist, "train", MNIST_TRAIN),
        (mnist, "test", MNIST_TEST),
        (fashion_mnist, "train", [6000] * 10),
        (fashion_mnist, "test", [1000] * 10),
    ],
)
def test_the_official_files(load, part, counts, tmp_path):
    import torchvision

    folder = pvi_data()
    images = load(part=part)
    assert images.x.shape == (sum(counts), 784)
    assert (images.x.dtype, images.y.dtype, images.note) == (torch.float32, torch.int64, "")
    assert images.y.bincount().tolist() == counts
    assert (images.x.min(), images.x.max()) == (0, 1)
    if part == "train":
        published = (0.1307, 0.3081) if load is mnist else (0.2860, 0.3530)
        assert (round(images.x.mean().item(), 4), round(images.x.std().item(), 4)) == pytest.approx(
            published, abs=1.5e-4
        )
    # torchvision reads the same, from a folder as its own download leaves it.
    kind = {mnist: torchvision.datasets.MNIST, fashion_mnist: torchvision.datasets.FashionMNIST}[load]
    raw = tmp_path / kind.__name__ / "raw"
    raw.mkdir(parents=True)
    for file in (folder / images.name).glob("*.gz"):
        (raw / file.name).symlink_to(file)
    theirs = kind(str(tmp_path), train=part == "train", download=True)
    assert torch.equal((images.x * 255).round().to(torch.uint8).view(-1, 28, 28), theirs.data)
    assert torch.equal(images.y, theirs.targets)
    assert images.classes == (DIGITS if load is mnist else tuple(theirs.classes))


@pytest.mark.slow
@pytest.mark.parametrize(("part", "note"), [("train", "10,000 of the 50,000"), ("test", "23 images went through JPEG")])
def test_cifar(part, note):
    images = cifar10(pvi_data(), part)
    assert images.x.shape == (10_000, 3, 32, 32)
    assert images.x.dtype == torch.float32
    assert images.y.bincount().tolist() == [1000] * 10
    assert note in images.note
    file = "cifar10_train_10k" if part == "train" else "cifar10_test"
    with np.load(pvi_data() / f"cifar10/{file}.npz") as raw:
        assert np.array_equal(np.rint(images.x[17, 2].numpy() * 255), raw["images"][17, :, :, 2])
        assert images.y[17] == raw["labels"][17]


def test_local_files(tmp_path, monkeypatch):
    pixels, labels = digits()
    write(tmp_path, pixels, labels)
    images = mnist(tmp_path, part="test")
    assert (images.name, len(images), images.classes) == ("mnist", 10_000, DIGITS)
    assert torch.equal(images.y, torch.tensor(labels))
    np.testing.assert_array_equal(images.x, (pixels.reshape(-1, 784) / np.float32(255)).astype(np.float32))
    monkeypatch.setenv("PVI_DATA", str(tmp_path))
    assert torch.equal(mnist(part="test").x, images.x)


@pytest.mark.parametrize(
    ("spoil", "file", "said"),
    [
        (lambda path: path.unlink(), "images-idx3", "file not found"),
        (lambda path: path.write_bytes(b"no gzip"), "images-idx3", "not a gzip-compressed IDX file"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "images-idx3", "or damaged"),
        (lambda path: path.write_bytes(gzip.compress(b"")), "labels-idx1", "not a gzip-compressed IDX file"),
        (lambda path: path.write_bytes(gzip.compress(b"text, not IDX")), "labels-idx1", "not a gzip-compressed IDX"),
        (lambda path: path.write_bytes(gzip.compress(idx(np.zeros((9, 28, 28))))), "images-idx3", r"\[9, 28, 28\]"),
        (lambda path: path.write_bytes(gzip.compress(idx(np.zeros(9)))), "labels-idx1", r"labels of shape \[9\]"),
        (lambda path: path.write_bytes(gzip.compress(idx(np.full(10_000, 10)))), "labels-idx1", "from 0 to 9"),
    ],
)
def test_files_that_are_wrong(tmp_path, spoil, file, said):
    write(tmp_path, *digits())
    path = tmp_path / f"mnist/t10k-{file}-ubyte.gz"
    spoil(path)
    with pytest.raises(ImageError, match=said) as caught:
        mnist(tmp_path, part="test")
    assert str(caught.value).startswith(str(path))


def test_mixed_up_files(tmp_path):
    (tmp_path / "mnist").mkdir()
    for kind in ("images-idx3", "labels-idx1"):
        name = f"t10k-{kind}-ubyte.gz"
        (tmp_path / "mnist" / name).symlink_to(pvi_data() / "fashion-mnist" / name)
    with pytest.raises(ImageError, match=r"t10k-images-idx3-ubyte.gz: this is FashionMNIST's t10k-images.*put MNIST's"):
        mnist(tmp_path, part="test")


def test_half_a_set_is_not_downloaded_over(tmp_path, monkeypatch):
    write(tmp_path, *digits())
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").unlink()
    monkeypatch.setenv("PVI_DATA", str(tmp_path))
    with pytest.raises(ImageError, match=r"t10k-labels-idx1-ubyte\.gz: file not found beside the others"):
        mnist(part="test")


def test_a_download_lands_in_torch_s_cache(nowhere, monkeypatch):
    pixels, labels = digits(50)
    fetched = []

    def fetch(url, download_root, filename, md5):
        fetched.append(filename)
        values = pixels if "images" in filename else labels
        (nowhere / "FashionMNIST/raw" / filename.removesuffix(".gz")).write_bytes(idx(values))
        assert download_root == str(nowhere / "FashionMNIST/raw")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", fetch)
    images = fashion_mnist(part="test")
    assert torch.equal(images.y, torch.tensor(labels))
    assert images.x.shape == (50, 784)
    assert images.classes == CLOTHES
    assert len(fetched) == 4
    fashion_mnist()  # from the cache
    assert len(fetched) == 4


def test_a_downloaded_cifar(nowhere, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)

    def fake(root, train, download):
        assert (root, train, download) == (str(nowhere), True, True)
        return SimpleNamespace(data=pixels, targets=[row % 10 for row in range(20)])

    monkeypatch.setattr("torchvision.datasets.CIFAR10", fake)
    images = cifar10()
    np.testing.assert_allclose(images.x[3, 1], pixels[3, :, :, 1] / 255, rtol=1e-6)
    assert images.y.tolist() == [row % 10 for row in range(20)]
    assert images.note == ""


@pytest.mark.parametrize(("load", "name"), [(mnist, "mnist"), (fashion_mnist, "fashion-mnist"), (cifar10, "cifar10")])
def test_no_network(nowhere, load, name):
    with pytest.raises(ImageError, match=rf"{name} could not be downloaded to .*no network.*set PVI_DATA to a folder"):
        load()


def test_wrong_cifar_files(tmp_path):
    with pytest.raises(ImageError, match=r"cifar10_test\.npz: file not found"):
        cifar10(tmp_path, "test")
    path = tmp_path / "cifar10/cifar10_test.npz"
    path.parent.mkdir()
    good = {"images": np.zeros((4, 32, 32, 3), np.uint8), "labels": np.zeros(4, np.uint8)}
    for content, said in (
        ({"images": good["images"]}, "not an .npz file with images and labels"),
        (good | {"images": np.zeros((4, 3, 32, 32), np.uint8)}, r"images are uint8 \[4, 3, 32, 32\]"),
        (good | {"images": np.zeros((4, 32, 32, 3))}, "images are float64"),
        (good | {"labels": np.full(4, 10, np.uint8)}, "from 0 to 9"),
    ):
        np.savez(path, **content)
        with pytest.raises(ImageError, match=said):
            cifar10(tmp_path, "test")
    np.savez(path, **good)
    assert cifar10(tmp_path, "test").note == ""
    for content in (b"no zip", b"", path.read_bytes()[:-500]):
        path.write_bytes(content)
        with pytest.raises(ImageError, match=r"cifar10_test\.npz: not an \.npz file"):
            cifar10(tmp_path, "test")


def test_unknown_parts():
    for load in (mnist, fashion_mnist, cifar10):
        with pytest.raises(ImageError, match="'train' or 'test', not 'all'"):
            load(part="all")


def small():
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    return Images("small", torch.arange(100.0)[:, None], y, ("a", "b", "c"), "made up")


def test_subsets_keep_the_classes_shares():
    images = small()
    part = subset(images, 20, seed=1)
    assert part.y.bincount().tolist() == [12, 6, 2]
    assert subset(images, 15).y.bincount().tolist() == [9, 5, 1]  # 9, 4.5 and 1.5: the first of equal remainders
    assert subset(images, 1).y.tolist() == [0]
    assert torch.equal(subset(images, 100).x, images.x)
    rows = part.x[:, 0].long()
    assert torch.equal(rows, rows.sort().values)
    assert len(set(rows.tolist())) == 20
    assert torch.equal(part.y, images.y[rows])
    assert part.note == "made up; 20 of 100 images, classes in proportion, drawn with seed 1"
    assert torch.equal(subset(images, 20, seed=1).x, part.x)
    assert not torch.equal(subset(images, 20, seed=2).x, part.x)
    for n in (0, 101):
        with pytest.raises(ValueError, match=f"1 to 100 images, not {n}"):
            subset(images, n)


def test_both_parts_together():
    train = small()
    test = replace(subset(train, 20, seed=1), note="fewer")
    both = joined(train, test)
    assert torch.equal(both.x[:100], train.x)
    assert torch.equal(both.x[100:], test.x)
    assert both.y.tolist() == train.y.tolist() + test.y.tolist()
    assert (both.name, both.classes) == ("small", ("a", "b", "c"))
    assert both.note == "made up; fewer; 100 training and 20 test images together"
    assert joined(replace(train, note=""), replace(test, note="")).note == "100 training and 20 test images together"
    for other, said in (
        ({"name": "other"}, "their names are small and other"),
        ({"classes": ("a", "b", "d")}, "their classes are"),
        ({"x": torch.zeros(20, 2)}, r"their shapes are \[1\] and \[2\]"),
    ):
        with pytest.raises(ValueError, match=f"images of different sets cannot be joined: {said}"):
            joined(train, replace(test, **other))


def test_importing_pvi_data_leaves_torchvision_alone():
    code = "import sys, pvi.data, pvi.data.images; sys.exit('torchvision' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
