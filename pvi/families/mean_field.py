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


def inverse_softplus(scale: Tensor) -> Tensor:
    """ρ with log(1 + exp ρ) = σ."""
    return scale + torch.log(-torch.expm1(-scale))
