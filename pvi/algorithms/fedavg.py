"""Federated averaging of a point estimate, FedAvg (McMahan et al. 2017).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate |
| solver | point-steps: gradient steps on -(1/b) Σ log p(y_j given θ) |
| aggregator | location average, by rows or equal |
| schedule | synchronous, undamped, or a random subset |
"""

from dataclasses import dataclass
from typing import Literal

import torch

from pvi.aggregators import LocationAverage
from pvi.algorithms.protocol import SYNCHRONOUS, Algorithm, Energy
from pvi.cavities import no_deletion
from pvi.families.mean_field import is_mean_field, natural_from_moments
from pvi.posterior import Posterior
from pvi.schedules import RandomSubset, Schedule
from pvi.solvers import LocalSteps, PointSteps
from pvi.solvers.rule import Rule

SPREADS = (1e-8, 1.0)
"""Standard deviations that single precision can hold: smaller ones' precisions overflow."""
ITERATIONS = 20
"""Steps a visit where neither they nor epochs are named."""


def FedAvg(
    local_iterations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    optimiser: str = "sgd",
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
    keep_local: bool = False,
) -> Algorithm:
    """FedAvg: clients' gradient steps on their mean negative log likelihood, and the average of where they end.

    Args:
        local_iterations: R, steps a visit; 20 where ``epochs`` is not given either.
        epochs: passes over the client's rows in place of R; an incomplete last batch is skipped.
        batch_size: b, rows a step, without replacement within an epoch; ``None``: all.
        learning_rate: of the steps.
        optimiser: "sgd" or "adam"; it starts anew at every visit.
        weights: of the average: "rows", each client's share of the rows of all who answered, or "equal".
        clients_per_round: clients that work in a round, drawn at random; ``None``: all.
        subset_seed: fixes who is drawn.
        spread: the standard deviation of every latent around the estimate.
        keep_local: whether clients keep where they ended, before the average: ``result.personal`` then has it.

    There is no posterior and no prior in this: the run's ``posterior`` is the estimate with ``spread`` around it in
    the latents' unconstrained coordinates, a placeholder that says nothing of uncertainty. The estimate starts at the
    guide's means (the prior's without one); the prior is not used further. The reported free energy is the log
    likelihood of all rows at the estimate (up to ``spread``), in nats, and no bound of the evidence. Raises
    ``ValueError`` for options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.FedAvg(epochs=1, learning_rate=0.1), rounds=50)  # doctest: +SKIP
    """
    iterations = ITERATIONS if local_iterations is None and epochs is None else local_iterations
    rule = PointSteps(iterations, epochs, batch_size, learning_rate, optimiser, keep_local=keep_local)
    return averaging("fedavg", "FedAvg", rule, weights, clients_per_round, subset_seed, spread)


def averaging(
    name: str,
    method: str,
    rule: Rule,
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
    personal: bool = False,
    smoothing: float = 1.0,
) -> Algorithm:
    """The parts that methods of point estimates have in common; ``method`` is what messages call it.

    ``personal``: clients keep estimates of their own, under which the run's value is reported. ``smoothing`` is the
    server's step towards the average. Raises ``ValueError`` for options out of range.
    """
    schedule = attending(method, clients_per_round, subset_seed)
    low, high = SPREADS
    if isinstance(spread, bool) or not isinstance(spread, int | float) or not low <= spread <= high:
        raise ValueError(f"{method}: spread, a standard deviation, lies between {low:g} and {high:g}, got {spread!r}")
    return Algorithm(
        name, no_deletion, LocationAverage(weights, smoothing), schedule=schedule, damping=1.0, rounds=100, fixed=True,
        solver=LocalSteps(rule), start=Point(spread), energy=Energy(personal=personal, weight=0.0), factors=False,
        point=True,
    )  # fmt: skip


def attending(method: str, clients_per_round: int | None, subset_seed: int) -> Schedule:
    """Synchronous rounds of all clients, or of some at random; raises ``ValueError`` for a number that is none."""
    if clients_per_round is None:
        return SYNCHRONOUS
    if isinstance(clients_per_round, bool) or not isinstance(clients_per_round, int) or clients_per_round < 1:
        raise ValueError(
            f"{method}: clients_per_round is a whole number, at least 1, or None for all, got {clients_per_round!r}"
        )
    return RandomSubset(clients_per_round, subset_seed)


@dataclass(frozen=True)
class Point:
    """The estimate before the first round: the guide's means (the prior's without one), ``spread`` around them."""

    spread: float

    def __call__(self, prior: Posterior, guide: Posterior | None) -> Posterior:
        """See :data:`~pvi.algorithms.protocol.Start`."""
        begun = prior if guide is None else guide
        if not is_mean_field(begun.family):  # of another family the solver says that it cannot do it
            return begun
        loc, _ = begun.family.moments(begun.natural)
        natural = natural_from_moments(begun.family, loc, torch.full_like(loc, self.spread))
        return Posterior(begun.family, natural, begun.coordinates)
