"""Natural parameters of a log density or factor that should lie in a family: recovered by evaluation, then verified."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, GaussianFamily, Product, log_prob

DRAWS = 16
"""Points of a check, in pairs that mirror each other."""


class Recovered(NamedTuple):
    """η and how far η·T(x) - A(η) is from the log density at random points (nats, relative to its size)."""

    natural: Tensor
    residual: float
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether the density is a normalised member of the family, up to rounding."""
        return self.residual <= self.tolerance


class RecoveredFactor(NamedTuple):
    """η, the constant c (a scalar tensor, nats) and how far η·T(x) + c is from the log factor, relative to its size."""

    natural: Tensor
    constant: Tensor
    residual: float
    tolerance: float

    @property
    def exact(self) -> bool:
        """Whether the factor lies in the family, up to rounding; it may be improper."""
        return self.residual <= self.tolerance


def recover(family: Family, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Recovered:
    """η of ``log_density`` (``[size] -> []``, normalised) in ``family``; check ``exact`` before use.

    The points of the check are those of :func:`support_points`, so that a density that only looks like a member near
    one place, or is not normalised over the whole space, is seen.
    """
    natural = family.recover(log_density, like).detach()
    tolerance = _tolerance(natural)
    if not bool(family.is_proper(natural)):
        return Recovered(natural, float("inf"), tolerance)
    points = support_points(family, natural)
    found, size = log_prob(family, natural, points), family.log_partition(natural).abs()
    return Recovered(natural, _residual(family, natural, log_density, points, found, size), tolerance)


def recover_factor(family: Family, log_factor: Callable[[Tensor], Tensor], like: Tensor) -> RecoveredFactor:
    """η and c of ``log_factor`` (``[size] -> []``), which may be unnormalised and improper; check ``exact`` before use.

    Verified at the same points as by :func:`recover`. Where the residual exceeds the tolerance the factor lies outside
    the family, and η and c mean nothing.
    """
    natural, constant = (part.detach() for part in factor_parameters(family, log_factor, like))
    points = support_points(family, natural)
    found = (natural * family.statistics(points)).sum(-1) + constant
    residual = _residual(family, natural, log_factor, points, found, constant.abs())
    return RecoveredFactor(natural, constant, residual, _tolerance(natural))


def factor_parameters(family: Family, log_factor: Callable[[Tensor], Tensor], like: Tensor) -> tuple[Tensor, Tensor]:
    """η and c of a log factor that is known to be η·T(x) + c, unverified.

    Differentiable (``torch.func.grad`` too) in whatever ``log_factor`` closes over.
    """
    natural = family.recover(log_factor, like)
    inside = family.interior(like)
    return natural, log_factor(inside) - (natural * family.statistics(inside)).sum()


def support_points(family: Family, like: Tensor) -> Tensor:
    """Fixed points ``[DRAWS, size]`` of the support: near and far, of the dtype and device of ``like``.

    Gaussian members: draws of scale ¼ to 2 about 0. Others: draws of reference members, whose unconstrained parameters
    have spreads of up to 1.
    """
    generator = torch.Generator(device=like.device).manual_seed(0)
    return _points(family, like, generator)


def _points(family: Family, like: Tensor, generator: torch.Generator) -> Tensor:
    if isinstance(family, Product):
        return torch.cat([_points(member, like, generator) for member in family.members], -1)
    half = DRAWS // 2
    length = family.size if isinstance(family, GaussianFamily) else family.num_free
    noise = torch.randn(half, length, generator=generator, dtype=like.dtype, device=like.device)
    noise = noise * torch.linspace(1 / half, 1, half, dtype=like.dtype, device=like.device)[:, None]
    noise = torch.cat([noise, -noise])
    if isinstance(family, GaussianFamily):
        return 2 * noise
    return family.sample(family.natural_from_free(noise), (), generator)


def _tolerance(natural: Tensor) -> float:
    return 1e4 * torch.finfo(natural.dtype).eps


def _residual(
    family: Family, natural: Tensor, log_factor: Callable[[Tensor], Tensor], points: Tensor, found: Tensor, size: Tensor
) -> float:
    expected = torch.stack([log_factor(x) for x in points]).detach()
    # Cancellation between large terms sets what rounding can reach.
    size = (natural * family.statistics(points)).abs().sum(-1) + size + 1
    residual = ((found - expected).abs() / size).max().item()
    return residual if residual == residual else float("inf")
