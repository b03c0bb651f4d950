"""Families whose coordinates are independent Gaussians: η by mean and standard deviation."""

import torch
from torch import Tensor

from pvi.families.diagonal_gaussian import DiagonalGaussian
from pvi.families.product import Product


def is_mean_field(family: Product) -> bool:
    """Whether every coordinate is an independent Gaussian."""
    return all(isinstance(member, DiagonalGaussian) for member in family.members)


def natural_from_moments(family: Product, loc: Tensor, scale: Tensor) -> Tensor:
    """η ``[..., num_natural]`` of a mean-field product with ``loc`` and ``scale``, each ``[..., size]``.

    The inverse of ``family.moments``, which gives mean and variance. Raises ``TypeError`` for another family.
    """
    sizes = [member.size for member in family.members]
    parts: list[Tensor] = []
    for member, mean, sd in zip(family.members, loc.split(sizes, -1), scale.split(sizes, -1), strict=True):
        if not isinstance(member, DiagonalGaussian):
            raise TypeError(f"{member} is not a Gaussian of independent coordinates")
        parts.append(member.natural_from_standard(loc=mean, scale=sd))
    return torch.cat(parts, -1)


def softplus(rho: Tensor) -> Tensor:
    """σ = log(1 + exp ρ), to a few units in the last place; not to be differentiated: the slope is ``sigmoid(rho)``.

    log(1 + y) is y log(u) / (u - 1) at the rounded u = 1 + y: vectorised, where ``log1p`` of most libraries is not, and
    ten times as fast.
    """
    y = torch.exp(-rho.abs())
    u = 1 + y
    rest = u - 1
    log1p = torch.where(rest == 0, y, y * torch.log(u) / torch.where(rest == 0, 1, rest))
    return rho.clamp(min=0) + log1p


def inverse_softplus(scale: Tensor) -> Tensor:
    """ρ with log(1 + exp ρ) = σ."""
    return scale + torch.log(-torch.expm1(-scale))


def divergence(loc: Tensor, sd: Tensor, other_loc: Tensor, other_sd: Tensor) -> Tensor:
    """KL(q, w) of independent Gaussians in nats, ``[size] -> []``."""
    ratio, shift = sd / other_sd, (loc - other_loc) / other_sd
    return (0.5 * (ratio * ratio + shift * shift - 1) - ratio.log()).sum(-1)
