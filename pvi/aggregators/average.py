"""Averages of the clients' answers, for methods whose q is no product of factors.

Every client's answer is q_m = q Δ_m: its change times the q that the server holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pvi.factors import Factor
from pvi.families import largest_step
from pvi.families.mean_field import inverse_softplus, natural_from_moments
from pvi.posterior import Posterior


@dataclass(frozen=True)
class ParameterAverage:
    """v ← (1 - β) v + β mean_i v_i with v = (μ, ρ), σ = log(1 + exp ρ) (Zhang et al. 2022, algorithm 1, server).

    β is ``smoothing``, in (0, 1]. Proper, the fraction 1, where the answers are to the q that the server
    holds, as in synchronous rounds.
    """

    smoothing: float = 1.0

    def __call__(
        self, posterior: Posterior, deltas: Sequence[Factor], shares: Sequence[float]
    ) -> tuple[Posterior, float]:
        """See :data:`~pvi.aggregators.product.Aggregator`; without answers q stays."""
        return _smoothed(posterior, deltas, self.smoothing, lambda loc, scale: (loc.mean(0), _mean_rho(scale)))


@dataclass(frozen=True)
class MomentAverage:
    """μ_w = mean_i μ_i, σ²_w = mean_i (σ²_i + μ²_i) - μ²_w: the w with the smallest mean_i KL(q_i, w).

    In the text the closed-form optimum of the server's problem (Zhang et al. 2022, section 2). Smoothed in v as
    :class:`ParameterAverage` is.
    """

    smoothing: float = 1.0

    def __call__(
        self, posterior: Posterior, deltas: Sequence[Factor], shares: Sequence[float]
    ) -> tuple[Posterior, float]:
        """See :data:`~pvi.aggregators.product.Aggregator`; without answers q stays."""
        return _smoothed(posterior, deltas, self.smoothing, matched)


@dataclass(frozen=True)
class LocationAverage:
    """μ ← (1 - β) μ + β Σ_i w_i μ_i (McMahan et al. 2017, algorithm 1, server), and what ``precision`` says of Λ.

    ``weights`` w_i: "rows", the clients' shares of the rows of all who answered, or "equal". β is ``smoothing``, in
    (0, 1]. ``precision``: "kept" as it is, for point estimates; "averaged" with the weights, Σ w_i Λ_i; or "summed",
    Λ + Σ (Λ_i - Λ), for clients that exchange their own part of it, of which as much is applied as keeps q proper:
    rounding alone can ask for less than all. Raises ``ValueError`` for other values.
    """

    weights: Literal["rows", "equal"] = "rows"
    smoothing: float = 1.0
    precision: Literal["kept", "averaged", "summed"] = "kept"

    def __post_init__(self) -> None:
        check_weights(self.weights)
        check_smoothing(self.smoothing)
        if self.precision not in ("kept", "averaged", "summed"):
            raise ValueError(f"precision is 'kept', 'averaged' or 'summed', got {self.precision!r}")

    def __call__(
        self, posterior: Posterior, deltas: Sequence[Factor], shares: Sequence[float]
    ) -> tuple[Posterior, float]:
        """See :data:`~pvi.aggregators.product.Aggregator`; without answers q stays."""
        if not deltas:
            return posterior, 1.0
        family, natural = posterior.family, posterior.natural
        changes = torch.stack([delta.natural for delta in deltas])
        loc = family.location(natural + changes)
        share = weighting(self.weights, shares, loc)
        mean = share @ loc
        if self.smoothing < 1:
            mean = (1 - self.smoothing) * family.location(natural) + self.smoothing * mean
        if self.precision == "averaged":
            natural = natural + share @ changes
        fraction = 1.0
        if self.precision == "summed":
            change = changes.sum(0)
            fraction = float(largest_step(family, natural, change))
            natural = natural + fraction * change
        return Posterior(family, family.relocate(natural, mean), posterior.coordinates), fraction


def matched(loc: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the mixture of Gaussians ``loc [S, size]``, ``scale [S, size]``."""
    mean = loc.mean(0)
    # The same as mean(σ² + μ²) - μ_w², without the difference of large numbers.
    return mean, (scale.square() + (loc - mean).square()).mean(0).sqrt()


def weighting(weights: Literal["rows", "equal"], shares: Sequence[float], like: Tensor) -> Tensor:
    """w_i ``[M]``, of sum 1, of those who answered."""
    given = like.new_tensor([1.0] * len(shares) if weights == "equal" else list(shares))
    return given / given.sum()


def check_weights(weights: str) -> None:
    """Raises ``ValueError`` for an unknown weighting."""
    if weights not in ("rows", "equal"):
        raise ValueError(f"weights is 'rows' or 'equal', got {weights!r}")


def check_smoothing(smoothing: float) -> float:
    """β; raises ``ValueError`` outside (0, 1]."""
    if isinstance(smoothing, bool) or not isinstance(smoothing, int | float) or not 0 < smoothing <= 1:
        raise ValueError(f"smoothing must lie in (0, 1], 1 for none, got {smoothing!r}")
    return float(smoothing)


Moments = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _smoothed(posterior: Posterior, deltas: Sequence[Factor], beta: float, average: Moments) -> tuple[Posterior, float]:
    if not deltas:
        return posterior, 1.0
    family = posterior.family
    answers = posterior.natural + torch.stack([delta.natural for delta in deltas])
    loc, variance = family.moments(answers)
    mean, sd = average(loc, variance.sqrt())
    if beta < 1:
        before, spread = family.moments(posterior.natural)
        mean = (1 - beta) * before + beta * mean
        sd = softplus((1 - beta) * inverse_softplus(spread.sqrt()) + beta * inverse_softplus(sd))
    return Posterior(family, natural_from_moments(family, mean, sd), posterior.coordinates), 1.0


def _mean_rho(scale: Tensor) -> Tensor:
    return softplus(inverse_softplus(scale).mean(0))
