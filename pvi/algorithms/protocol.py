"""An algorithm is a short table that names its parts."""

from collections.abc import Callable
from dataclasses import dataclass

from pvi.aggregators import Aggregator
from pvi.cavities import CavityRule
from pvi.posterior import Posterior
from pvi.programs.guides import Guide
from pvi.schedules import Schedule, Synchronous
from pvi.solvers import PersonalSolver

SYNCHRONOUS = Synchronous()


@dataclass(frozen=True)
class Energy:
    """The free energy that a run reports, in nats: Σ_m E[log p(y_m | θ)] - ``weight`` KL.

    Under the shared q, with KL(q, p) to the prior; or, ``personal``, each client's term under its own posterior q_m,
    with Σ_m KL(q_m, q).
    """

    personal: bool = False
    weight: float = 1.0


SHARED = Energy()

Start = Callable[[Posterior, Posterior | None], Posterior]
"""The q of a run's start from the prior and, where the guide says where to start, from the guide."""


def from_prior(prior: Posterior, guide: Posterior | None) -> Posterior:
    """q = p, every factor 1."""
    return prior


@dataclass(frozen=True)
class Algorithm:
    """Cavity rule and aggregator, and what goes with them; the local solver is chosen beside it.

    ``alpha`` is that of the local divergence (0: the variational one). ``schedule``, ``damping`` and ``rounds`` are
    used where the user names none; where ``fixed`` is true schedule and damping are part of the algorithm, and
    ``max_rounds`` bounds its rounds. ``pooled`` brings everybody's rows to one client: a reference, not a federation.
    ``solver`` is the local solver where it is part of the algorithm, ``start`` gives the first q, and ``energy`` what
    the run reports. Without ``factors`` q is not the prior times the clients' factors: these stay 1. ``guide`` is the
    one where the user names none, and ``gaussian_prior`` says that the model's prior must lie in the guide's family.
    ``point``: q is a point estimate, whose spread is set and not learned.
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
    solver: PersonalSolver | None = None
    start: Start = from_prior
    energy: Energy = SHARED
    factors: bool = True
    guide: Guide | None = None
    gaussian_prior: bool = False
    point: bool = False
