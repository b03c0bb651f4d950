"""What the tables are held against. None of these numbers follows from a measurement."""

from typing import NamedTuple

from benchmarks.compare import Compared
from benchmarks.handwritten import AUTOGRAD
from benchmarks.measure import Spread
from benchmarks.ours import CAPTURED, COMPILED
from benchmarks.stock import NAME as STOCK


class Target(NamedTuple):
    """A bound on the ratio of two contenders' costs for one case; ``at_most``, or at least."""

    case: str
    above: str
    below: str
    bound: float
    at_most: bool = True


LOGISTIC = "logistic regression, {} clients, 1 particle"
TARGETS = (
    Target(LOGISTIC.format(10), COMPILED, AUTOGRAD, 0.8),
    Target(LOGISTIC.format(100), COMPILED, AUTOGRAD, 0.8),
    Target(LOGISTIC.format(10), CAPTURED, AUTOGRAD, 2.0),
    Target(LOGISTIC.format(100), CAPTURED, AUTOGRAD, 1.5),
    Target(LOGISTIC.format(100), STOCK, COMPILED, 40.0, at_most=False),
    Target("network 784-200-10, 10 clients, 100 rows", COMPILED, AUTOGRAD, 1.2),
)
UNEQUAL = 1.5
"""Ten clients of 100 rows and one of 10,000, against eleven equal ones with as many rows together."""
LINEAR = 1.1
"""The exponent of the server's seconds against clients: what a fit to noisy times cannot tell from 1."""
ADULT_SECONDS = 8.0
"""Adult, split B, 20 rounds with exact local solves."""


class Verdict(NamedTuple):
    """A number against its bound."""

    what: str
    found: Spread
    bound: float
    at_most: bool

    @property
    def met(self) -> bool:
        """Whether the median keeps the bound."""
        return self.found.median <= self.bound if self.at_most else self.found.median >= self.bound


def verdicts(compared: list[Compared]) -> list[Verdict]:
    """Those of the targets whose cases were measured."""
    by_case = {one.case: one.timings for one in compared}
    return [
        Verdict(
            f"{target.case}: {target.above} / {target.below}",
            by_case[target.case].ratio(target.above, target.below),
            target.bound,
            target.at_most,
        )
        for target in TARGETS
        if target.case in by_case
    ]
