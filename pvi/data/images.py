"""Three public sets of images, from local files or from their publishers.

Local files are looked for in ``data_dir``, else in the folder that the environment variable PVI_DATA names; where that
has none, torchvision downloads the set once into ``datasets`` beside torch's other caches (~/.cache/torch).
"""

import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pvi.data.image_files import ImageError, download, find_folder, read_idx

Part = Literal["train", "test"]

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ROWS = {"train": 60_000, "test": 10_000}
CIFAR_FILES = {"train": "cifar10/cifar10_train_10k.npz", "test": "cifar10/cifar10_test.npz"}


@dataclass(frozen=True, eq=False)
class Images:
    """Images x, float32 in [0, 1], ``[n, pixels]`` or ``[n, channels, height, width]``, and their classes y ``[n]``.

    y (int64) counts through ``classes``. ``note`` says what distinguishes these images from the published set.
    """

    name: str
    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    note: str = ""

    def __len__(self) -> int:
        return len(self.y)


def mnist(data_dir: str | Path | None = None, part: Part = "train") -> Images:
    """MNIST (LeCun, Cortes and Burges): handwritten digits, 60,000 or 10,000 images of 28 x 28, x ``[n, 784]``.

    Local files are ``mnist/*-ubyte.gz``. Raises :class:`ImageError` where they are not in ``data_dir``, are damaged or
    another set's, or cannot be downloaded.
    """
    return _idx("mnist", "MNIST", DIGITS, data_dir, part)


def fashion_mnist(data_dir: str | Path | None = None, part: Part = "train") -> Images:
    """Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): clothes; all else as for :func:`mnist`.

    Local files are ``fashion-mnist/*-ubyte.gz``.
    """
    return _idx("fashion-mnist", "FashionMNIST", CLOTHES, data_dir, part)


def cifar10(data_dir: str | Path | None = None, part: Part = "train") -> Images:
    """CIFAR-10 (Krizhevsky, 2009): 50,000 or 10,000 colour photos, x ``[n, 3, 32, 32]``.

    Local files are ``cifar10/cifar10_train_10k.npz``, a part of the training images with as many of each class, and
    ``cifar10/cifar10_test.npz``, each with ``images`` uint8 ``[n, 32, 32, 3]`` and ``labels`` ``[n]``; ``note`` says
    what they lack. Raises :class:`ImageError` as :func:`mnist`.
    """
    folder = find_folder(data_dir, [CIFAR_FILES[_checked(part)]])
    if folder is None:
        data = download("CIFAR10", "cifar10", part == "train")
        return Images("cifar10", _channels_first(data.data), torch.tensor(data.targets), OBJECTS)
    path = folder / CIFAR_FILES[part]
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            found = {key: file[key] for key in ("images", "labels")}
            exact = file.get("exact", np.ones(len(found["labels"]), bool))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ImageError(f"{path}: not an .npz file with images and labels ({error}); fetch it again") from error
    pixels, labels = found["images"], found["labels"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (32, 32, 3):
        raise ImageError(
            f"{path}: images are {pixels.dtype} {list(pixels.shape)} where uint8 [n, 32, 32, 3] is expected"
        )
    y = _labels(path, torch.as_tensor(labels.astype(np.int64)), len(pixels), len(OBJECTS))
    notes = []
    if part == "train" and len(y) < 50_000:
        notes.append(f"{len(y):,} of the 50,000 training images ({path.name})")
    if not exact.all():
        notes.append(
            f"{int((~exact).sum())} images went through JPEG compression: their pixels are not the original ones"
        )
    return Images("cifar10", _channels_first(pixels), y, OBJECTS, "; ".join(notes))


def subset(images: Images, n: int, seed: int = 0) -> Images:
    """``n`` of the images, drawn at random without replacement, each class in proportion; for quick runs.

    Class k gets n n_k / N of its n_k images, rounded down, and those with the largest remainders one more, so that the
    numbers add up. Images stay in their order, and ``note`` says that they are a part. Numbers measured on a part are
    not those of the published set. Raises ``ValueError`` for an ``n`` that is not in 1, ..., N.
    """
    if not 1 <= n <= len(images):
        raise ValueError(f"a subset of {images.name} has 1 to {len(images)} images, not {n}")
    y = images.y.numpy()
    counts = np.bincount(y, minlength=len(images.classes))
    shares = n * counts / len(y)
    taken = np.floor(shares).astype(int)
    more = np.argsort(taken - shares, kind="stable")[: n - taken.sum()]
    taken[more] += 1
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(np.flatnonzero(y == k), number, replace=False) for k, number in enumerate(taken)]
    rows = torch.from_numpy(np.sort(np.concatenate(drawn)))
    note = f"{n:,} of {len(images):,} images, classes in proportion, drawn with seed {seed}"
    return replace(images, x=images.x[rows], y=images.y[rows], note="; ".join(filter(None, (images.note, note))))


def joined(train: Images, test: Images) -> Images:
    """The training and the test images of one set, in this order: for clients that split both anew.

    ``note`` says so after the notes of both. Raises ``ValueError`` where they are of different sets.
    """
    for what, one, other in (
        ("names", train.name, test.name),
        ("classes", train.classes, test.classes),
        ("shapes", list(train.x.shape[1:]), list(test.x.shape[1:])),
    ):
        if one != other:
            raise ValueError(f"images of different sets cannot be joined: their {what} are {one} and {other}")
    note = f"{len(train):,} training and {len(test):,} test images together"
    notes = "; ".join(filter(None, (train.note, test.note, note)))
    return replace(train, x=torch.cat([train.x, test.x]), y=torch.cat([train.y, test.y]), note=notes)


def _idx(name: str, dataset: str, classes: tuple[str, ...], data_dir: str | Path | None, part: Part) -> Images:
    stem = {"train": "train", "test": "t10k"}[_checked(part)]
    files = [f"{name}/{stem}-images-idx3-ubyte.gz", f"{name}/{stem}-labels-idx1-ubyte.gz"]
    folder = find_folder(data_dir, files)
    if folder is None:
        data = download(dataset, name, part == "train")
        return Images(name, _flat(data.data), data.targets.long(), classes)
    pixels, labels = (read_idx(folder / file, dataset) for file in files)
    if list(pixels.shape) != [ROWS[part], 28, 28]:
        raise ImageError(f"{folder / files[0]}: images have the shape {list(pixels.shape)}, not [{ROWS[part]}, 28, 28]")
    return Images(name, _flat(pixels), _labels(folder / files[1], labels.long(), ROWS[part], len(classes)), classes)


def _checked(part: Part) -> Part:
    if part not in get_args(Part):
        raise ImageError(f"part is 'train' or 'test', not {part!r}")
    return part


def _labels(path: Path, y: Tensor, rows: int, classes: int) -> Tensor:
    if list(y.shape) != [rows] or (rows and not 0 <= int(y.min()) <= int(y.max()) < classes):
        raise ImageError(
            f"{path}: labels of shape {list(y.shape)}, not [{rows}] from 0 to {classes - 1}; fetch it again"
        )
    return y


def _flat(pixels: Tensor) -> Tensor:
    return pixels.flatten(1).to(torch.float32) / 255


def _channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).to(torch.float32) / 255
