"""An algorithm is a short table that names its parts."""

from dataclasses import dataclass

from pvi.aggregators import Aggregator
from pvi.cavities import CavityRule
from pvi.schedules import Schedule, Synchronous

SYNCHRONOUS = Synchronous()


@dataclass(frozen=True)
class Algorithm:
    """Cavity rule and aggregator, and what goes with them; the local solver is chosen beside it.

    ``alpha`` is that of the local divergence (0: the variational one). ``schedule``, ``damping`` and ``rounds`` are
    used where the user names none; where ``fixed`` is true schedule and damping are part of the algorithm, and
    ``max_rounds`` bounds its rounds. ``pooled`` brings everybody's rows to one client: a reference, not a federation.
    """

    name: str
    cavity: CavityRule
    aggregate: Aggregator
    alpha: float = 0.0
    schedule: Schedule = SYNCHRONOUS
    damping: float = 0.2
    rounds: int = 20
    max_rounds: int | None = None
    fixed: bool = False
    pooled: bool = False
