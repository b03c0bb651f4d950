"""Natural parameters of a log density that should lie in a family: recovered by evaluating it, then verified."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, log_prob

DRAWS = 8


class Recovered(NamedTuple):
    """η and how far η·T(x) - A(η) is from the log density at random points (nats, relative to its size)."""

    natural: Tensor
    residual: float
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether the density is a normalised member of the family, up to rounding."""
        return self.residual <= self.tolerance


def recover(family: Family, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Recovered:
    """η of ``log_density`` (``[size] -> []``, normalised) in ``family``; check ``exact`` before use.

    The points of the check are fixed draws of scale 0, 1 and 2, so that a density that only looks quadratic near the
    origin, or is not normalised over the whole space, is seen.
    """
    natural = family.recover(log_density, like).detach()
    tolerance = 1e4 * torch.finfo(natural.dtype).eps
    if not bool(family.is_proper(natural)):
        return Recovered(natural, float("inf"), tolerance)
    generator = torch.Generator(device=like.device).manual_seed(0)
    noise = torch.randn(DRAWS, family.size, generator=generator, dtype=natural.dtype, device=natural.device)
    points = noise * torch.linspace(0, 2, DRAWS, dtype=natural.dtype, device=natural.device)[:, None]
    expected = torch.stack([log_density(x) for x in points]).detach()
    found = log_prob(family, natural, points)
    # Cancellation between large terms sets what rounding can reach.
    size = (natural * family.statistics(points)).abs().sum(-1).amax() + family.log_partition(natural).abs() + 1
    residual = ((found - expected).abs().max() / size).item()
    return Recovered(natural, residual if residual == residual else float("inf"), tolerance)
