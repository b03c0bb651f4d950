"""The corner of Pyro's and torch's global state that running a program needs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyro
import torch


@contextmanager
def running(dtype: torch.dtype) -> Iterator[None]:
    """Constants inside a model get ``dtype``; distributions do not validate, since validation breaks ``vmap``.

    Data and supports are checked once, before fitting.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with pyro.validation_enabled(False):
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Programs that draw from the global generators get ``seed``; afterwards those are as they were.

    Only the generators of the CPU and of ``device`` are touched: ``torch.manual_seed`` would reseed every CUDA device,
    and ``fork_rng`` restores only those it is told of.
    """
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
