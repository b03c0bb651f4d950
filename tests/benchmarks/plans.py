"""Which cases and sizes a run measures: in full, quickly, and on a GPU."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.compare import BATCHED, FULL, QUICK, Effort
from benchmarks.handwritten import AUTOGRAD
from benchmarks.ours import CAPTURED
from benchmarks.problems import Case, convolutional, dense, logistic


class Plan(NamedTuple):
    """``cases`` for all contenders; numbers of ``clients`` and ``rows`` that the cost of the contenders
    ``grown`` is measured against.

    ``prepared`` are numbers of clients whose models are looked at, ``unequal`` the rows of the small clients and the
    large one, ``peaks`` the numbers of clients whose memory is measured at ``parameters`` shared parameters,
    ``adult`` the rounds and repeats of Adult.
    """

    effort: Effort
    cases: tuple[Callable[[], Case], ...]
    grown: tuple[str, ...]
    clients: tuple[int, ...]
    rows: tuple[int, ...]
    prepared: tuple[int, ...]
    unequal: tuple[int, int]
    peaks: tuple[int, ...]
    parameters: int
    adult: tuple[int, int]


IN_FULL = Plan(
    effort=FULL,
    cases=(
        *(lambda clients=clients: logistic(clients) for clients in (1, 10, 100)),
        *(lambda clients=clients: logistic(clients, 10) for clients in (1, 10, 100)),
        lambda: dense(100),
        lambda: dense(512),
        lambda: convolutional(50),
    ),
    grown=BATCHED,
    clients=(10, 100, 1000, 10_000),
    rows=(100, 500, 2000, 10_000),
    prepared=(10, 100, 1000),
    unequal=(100, 10_000),
    peaks=(100, 1000, 10_000),
    parameters=1000,
    adult=(20, 2),
)
QUICKLY = Plan(
    effort=QUICK,
    cases=(
        lambda: logistic(2, 2, features=5, rows=40, batch_size=10),
        lambda: dense(5, 2, inputs=6, hidden=4, rows=20),
        lambda: convolutional(5, 2, side=10, rows=20),
    ),
    grown=(CAPTURED, AUTOGRAD),
    clients=(2, 4),
    rows=(20, 40),
    prepared=(2, 4),
    unequal=(10, 100),
    peaks=(2, 4),
    parameters=10,
    adult=(1, 1),
)
ON_A_GPU = IN_FULL._replace(
    effort=Effort(3, 0.1),
    cases=(
        lambda: logistic(10),
        lambda: logistic(100),
        lambda: logistic(10, 10),
        lambda: dense(100),
        lambda: convolutional(50),
    ),
    clients=(10, 1000),
    rows=(100, 10_000),
)
"""Compiling a dozen steps takes most of five minutes."""
