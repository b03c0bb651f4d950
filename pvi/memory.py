"""Free memory, how much of it a batched solve may take, and a place on disk for the states that do not."""

import logging
import tempfile
from pathlib import Path
from typing import Protocol

import psutil
import torch
from torch import Tensor

logger = logging.getLogger("pvi")

SHARE = 0.25
"""Of the free memory: what a batched solve, or the states of all clients, may take."""
FAST = 2**29
"""Bytes of a batched solve on a CPU."""
ARENA = 2**28
"""Bytes of one file on disk."""
ALIGNMENT = 64


def free_bytes(device: torch.device) -> int:
    """Memory that is free now, of the machine or of a GPU."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def batch_bytes(device: torch.device) -> int:
    """What a batched solve may take: on a CPU no more than it is fast in, since larger tensors leave the caches."""
    share = int(SHARE * free_bytes(device))
    return share if device.type == "cuda" else min(share, FAST)


class Store(Protocol):
    """Where what clients keep between visits lies."""

    def keep(self, tensor: Tensor) -> Tensor:
        """The same values, where they shall stay."""


class Resident:
    """In memory, as they are."""

    def keep(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor


class Mapped:
    """On disk, memory-mapped: the operating system reads what is used and writes back what it needs room for.

    The files have no names any more once they are open, so that nothing is left behind, however a run ends. They lie in
    ``folder`` (default: that of temporary files, which ``TMPDIR`` sets). A file goes when no tensor in it is used.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._arena = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def keep(self, tensor: Tensor) -> Tensor:
        """A copy on disk; tensors on other devices than the CPU stay where they are."""
        if tensor.device.type != "cpu" or not tensor.numel():
            return tensor
        if self._used + tensor.nbytes > len(self._arena):
            self._arena, self._used = self._open(max(ARENA, tensor.nbytes)), 0
        piece = self._arena[self._used : self._used + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
        self._used += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return piece.copy_(tensor)

    def _open(self, size: int) -> Tensor:
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix="pvi-") as file:
            file.truncate(size)
            return torch.from_file(file.name, shared=True, size=size, dtype=torch.uint8)


def store_for(num_bytes: int, device: torch.device) -> Store:
    """In memory where so many bytes take at most a quarter of what is free, else on disk; the log says so."""
    if device.type != "cpu" or num_bytes <= SHARE * free_bytes(device):
        return Resident()
    logger.info(
        "clients' states need %.1f GB, more than a quarter of the free memory: they are kept on disk, in %s",
        num_bytes / 1e9, tempfile.gettempdir(),
    )  # fmt: skip
    return Mapped()
