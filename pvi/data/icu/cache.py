"""Extracted features kept on disk: one file, trusted only if its own digest is right."""

import hashlib
import io
import os
import tempfile
from pathlib import Path

import numpy as np

from pvi.data.icu.stays import Stays

VERSION = 1
"""To be raised with every change of what is extracted or stored."""


def cache_folder(cache: bool | str | Path) -> Path | None:
    """Where to keep features: nowhere (False), in the user's cache (True), or in the named folder.

    The user's cache is `pvi` in the folder that XDG_CACHE_HOME names, else in `~/.cache`.
    """
    if isinstance(cache, bool):
        return (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pvi") if cache else None
    return Path(cache)


def key(files: list[bytes], settings: object) -> str:
    """A name for what is extracted from the files' contents with the settings (anything with a plain repr)."""
    digest = hashlib.sha256(repr((VERSION, settings)).encode())
    for content in files:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]


def load(path: Path) -> Stays | None:
    """The stays of a cache file; None where it is not there, unreadable, or changed."""
    try:
        # Read first: NumPy leaves files open that are no archives.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except Exception:  # a damaged archive raises anything from zlib.error to EOFError; it is built again
        return None
    stored = arrays.pop("digest", None)
    if stored is None or str(stored) != _digest(arrays):
        return None
    texts = {name: tuple(arrays[name].tolist()) for name in ("records", "columns", "unit", "notes")}
    return Stays(str(arrays["name"]), features=arrays["features"], died=arrays["died"], **texts)


def save(path: Path, stays: Stays) -> str:
    """Write a cache file, whole or not at all; returns a sentence where that fails, else ""."""
    texts = {name: np.array(getattr(stays, name), dtype=np.str_) for name in ("records", "columns", "unit", "notes")}
    arrays = {"name": np.array(stays.name), "features": stays.features, "died": stays.died, **texts}
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            temporary = Path(file.name)
            np.savez_compressed(file, allow_pickle=False, digest=np.array(_digest(arrays)), **arrays)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        return f"The features could not be kept for the next time ({error}): say cache=False or name a folder."
    return ""


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
