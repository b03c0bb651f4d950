"""The product of changes: η_q ← η_q + f Σ Δ_m."""

from collections.abc import Callable, Sequence

import torch

from pvi.factors import Factor
from pvi.families import largest_step
from pvi.posterior import Posterior

Aggregator = Callable[[Posterior, Sequence[Factor], Sequence[float]], tuple[Posterior, float]]
"""The next q from the clients' changes and shares of all rows, and the fraction of the changes that was applied."""


def product(posterior: Posterior, deltas: Sequence[Factor], shares: Sequence[float]) -> tuple[Posterior, float]:
    """q Π Δ_m^f with the largest f in (0, 1] that keeps q proper (1 where the whole step does)."""
    if not deltas:
        return posterior, 1.0
    total = torch.zeros_like(posterior.natural)
    for delta in deltas:
        total += delta.natural
    fraction = float(largest_step(posterior.family, posterior.natural, total))
    natural = posterior.natural + fraction * total
    return Posterior(posterior.family, natural, posterior.coordinates), fraction
