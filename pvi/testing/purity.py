"""What a run must leave alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyro
import torch
from torch import Tensor


@contextmanager
def nothing_changed(arguments: Sequence[Tensor], law: Callable[[bool, str], None]) -> Iterator[None]:
    """Calls ``law`` with whether it holds and what broke: global state and the values of ``arguments`` stay.

    >>> def law(holds, broken):
    ...     print(broken) if not holds else None
    >>> with nothing_changed([], law):
    ...     _ = torch.randn(1)
    moved torch's global random state
    """
    before = [value.clone() for value in arguments]
    dtype, state, store = torch.get_default_dtype(), torch.get_rng_state(), pyro.get_param_store()
    with store.scope():
        pyro.param("a stranger's parameter", torch.tensor(1.0))
        yield
        names = set(store.keys())
    law(names == {"a stranger's parameter"}, f"left {names} in Pyro's parameter store")
    law(torch.equal(state, torch.get_rng_state()), "moved torch's global random state")
    law(torch.get_default_dtype() == dtype, "changed the default dtype")
    same = all(torch.equal(one, two) for one, two in zip(before, arguments, strict=True))
    law(same, "changed its arguments in place")
