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
