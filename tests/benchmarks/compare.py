"""One case, run by every contender."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarks.check import TOLERANCE, cavities, largest_difference
from benchmarks.handwritten import AUTOGRAD, BY_HAND, by_autograd, by_hand, handwritten
from benchmarks.measure import Contender, Timings, timings
from benchmarks.ours import CAPTURED, COMPILED, LOOP, Prepared, alike, loop, together
from benchmarks.problems import Case
from benchmarks.stock import NAME as STOCK
from benchmarks.stock import stock

ALL = (STOCK, LOOP, CAPTURED, COMPILED, AUTOGRAD, BY_HAND)
BATCHED = (CAPTURED, COMPILED, AUTOGRAD, BY_HAND)


class Effort(NamedTuple):
    """Repeats, and the seconds that each takes about."""

    repeats: int
    seconds: float


FULL, QUICK = Effort(7, 0.1), Effort(2, 0.02)


class Compared(NamedTuple):
    """A case's timings; ``difference`` is that of the hand-written gradients from the library's (see ``check.py``)."""

    case: str
    timings: Timings
    difference: float


def contender(name: str, case: Case, ready: Prepared) -> Contender:
    """The case's contender of that name, set up."""
    if name == STOCK:
        return stock(case)
    if name == LOOP:
        return loop(case, ready)
    if name in (CAPTURED, COMPILED):
        return together(case, ready, name == COMPILED)
    return handwritten(case, cavities(ready), by_autograd if name == AUTOGRAD else by_hand, name)


def compare(case: Case, device: torch.device, effort: Effort, names: Sequence[str] = ALL) -> Compared:
    """Every contender's cost; raises ``AssertionError`` where the hand-written gradients are not the library's."""
    case = case.to(device)
    ready = alike(case, device)
    difference = largest_difference(case, ready)
    if not difference < TOLERANCE:
        raise AssertionError(f"{case.label}: the hand-written gradients are off by {difference:.1e}")
    contenders = [contender(name, case, ready) for name in names]
    return Compared(case.label, timings(contenders, effort.repeats, effort.seconds, device), difference)
