"""Where images come from: IDX files of a folder, or torchvision's downloads (torchvision is slow to import)."""

import gzip
import os
import shutil
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor


class ImageError(ValueError):
    """Images that are not there or not what they should be; the message names the file and says what to do."""


def read_idx(path: Path, dataset: str) -> Tensor:
    """The uint8 content of a compressed IDX file, by torchvision's reader."""
    from torchvision.datasets import mnist as idx
    from torchvision.datasets.utils import calculate_md5

    # Repacked files have other sums; gzip keeps a checksum of the content, so that only mix-ups are looked for.
    known = {md5: (kind, file) for kind in ("MNIST", "FashionMNIST") for file, md5 in getattr(idx, kind).resources}
    kind, file = known.get(calculate_md5(path), (dataset, path.name))
    if (kind, file) != (dataset, path.name):
        raise ImageError(f"{path}: this is {kind}'s {file}; put {dataset}'s {path.name} in its place")
    try:
        with TemporaryDirectory() as folder:
            plain = Path(folder) / path.stem
            with gzip.open(path) as packed, plain.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            found: Tensor = idx.read_sn3_pascalvincent_tensor(str(plain))
    except (OSError, EOFError, zlib.error, AssertionError, ValueError, KeyError, RuntimeError) as error:
        raise ImageError(f"{path}: not a gzip-compressed IDX file, or damaged ({error}); fetch it again") from error
    if found.dtype != torch.uint8:
        raise ImageError(f"{path}: holds {found.dtype} where uint8 is expected; fetch it again")
    return found


def download(dataset: str, name: str, train: bool) -> Any:
    """torchvision's own data set, downloaded where it is not yet in the cache."""
    import torchvision

    root = Path(torch.hub.get_dir()).parent / "datasets"
    try:
        return getattr(torchvision.datasets, dataset)(str(root), train=train, download=True)
    except (OSError, RuntimeError, ValueError, AssertionError) as error:  # a URLError is an OSError
        reason = " ".join(str(error).split())
        raise ImageError(
            f"{name} could not be downloaded to {root} ({reason}): connect to the network, or set PVI_DATA to a folder "
            f"with local files (see pvi.data.images.{name.replace('-', '_')})"
        ) from error


def find_folder(data_dir: str | Path | None, files: list[str]) -> Path | None:
    """The folder that holds the files; None means download.

    A folder that the caller names must have all; that of PVI_DATA all or none.
    """
    if data_dir is not None:
        for file in files:
            if not (Path(data_dir) / file).exists():
                raise ImageError(f"{Path(data_dir) / file}: file not found (without data_dir the set is downloaded)")
        return Path(data_dir)
    named = os.environ.get("PVI_DATA")
    missing = [file for file in files if named and not (Path(named) / file).exists()]
    if not named or len(missing) == len(files):
        return None
    if missing:
        raise ImageError(f"{Path(named) / missing[0]}: file not found beside the others in the folder of PVI_DATA")
    return Path(named)
