"""The parts that methods of point estimates have in common."""

from dataclasses import replace
from typing import Literal

from pvi.aggregators import LocationAverage
from pvi.algorithms.fedavg import averaging
from pvi.algorithms.protocol import Algorithm, Energy
from pvi.solvers import LocalSteps, PointSteps
from pvi.solvers.rule import Rule


def point_method(
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
    """The parts of FedAvg with another rule; ``method`` is what messages call it.

    ``personal``: clients keep estimates of their own, under which the run's value is reported. ``smoothing`` is the
    server's step towards the average. Raises ``ValueError`` for options out of range.
    """
    return replace(
        averaging(name, method, PointSteps(), weights, clients_per_round, subset_seed, spread),
        aggregate=LocationAverage(weights, smoothing), solver=LocalSteps(rule),
        energy=Energy(personal=personal, weight=0.0),
    )  # fmt: skip


def check_fraction(method: str, **given: float) -> None:
    """Raises ``ValueError`` for an option that does not lie in (0, 1]."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ValueError(f"{method}: {name} lies in (0, 1], got {value!r}")
