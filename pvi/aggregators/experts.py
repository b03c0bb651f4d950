"""The product of experts: q ∝ Π_n q_n^π_n, a weighted average of natural parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pvi.aggregators.average import check_weights, weighting
from pvi.factors import Factor
from pvi.posterior import Posterior


@dataclass(frozen=True)
class Experts:
    """Λ_S = Σ π_n Λ_n, μ_S = Λ_S⁻¹ Σ π_n Λ_n μ_n (Liu et al. 2021, equation 12): η_S = Σ π_n η_n.

    ``weights`` π_n: "rows", the clients' shares of the rows of all who answered, or "equal". Raises ``ValueError`` for
    other values. The fraction of the changes that is applied is always 1: an average of proper η is proper.
    """

    weights: Literal["rows", "equal"] = "rows"

    def __post_init__(self) -> None:
        check_weights(self.weights)

    def __call__(
        self, posterior: Posterior, deltas: Sequence[Factor], shares: Sequence[float]
    ) -> tuple[Posterior, float]:
        """See :data:`~pvi.aggregators.product.Aggregator`; without answers q stays."""
        if not deltas:
            return posterior, 1.0
        changes = torch.stack([delta.natural for delta in deltas])
        natural = posterior.natural + weighting(self.weights, shares, changes) @ changes
        return Posterior(posterior.family, natural, posterior.coordinates), 1.0
