"""Gaussians by mean and precision, the precision a vector (independent coordinates) or a matrix (one full member)."""

import torch
from torch import Tensor

from pvi.families.diagonal_gaussian import DiagonalGaussian
from pvi.families.full_gaussian import FullGaussian
from pvi.families.mean_field import is_mean_field
from pvi.families.product import Product


def is_full(family: Product) -> bool:
    """Whether all coordinates are one Gaussian with a full covariance."""
    return len(family.members) == 1 and isinstance(family.members[0], FullGaussian)


def precision(family: Product, natural: Tensor) -> Tensor:
    """The precision of η ``[num_natural]``: its diagonal ``[size]`` of a mean field, else Λ ``[size, size]``.

    Linear in η, which may be improper. Raises ``TypeError`` for another family.
    """
    if is_mean_field(family):
        parts = [part[member.size :] for member, part in _members(family, natural)]
        return -2 * torch.cat(parts)
    return _full(family).precision_matrix(natural)


def natural_from_precision(family: Product, loc: Tensor, precision: Tensor) -> Tensor:
    """η ``[num_natural]`` of a mean ``[size]`` and a precision as :func:`precision` gives it; it may be improper."""
    if is_mean_field(family):
        sizes = [member.size for member in family.members]
        pairs = zip((precision * loc).split(sizes), (-0.5 * precision).split(sizes), strict=True)
        return torch.cat([torch.cat(pair) for pair in pairs])
    return _full(family).natural_from_precision(loc=loc, precision_matrix=precision)


def product_with(precision: Tensor, x: Tensor) -> Tensor:
    """Λ x ``[size]`` for either kind of precision."""
    return precision * x if precision.ndim == 1 else precision @ x


def _members(family: Product, natural: Tensor) -> list[tuple[DiagonalGaussian, Tensor]]:
    found = []
    for member, part in zip(family.members, family.split(natural).values(), strict=True):
        assert isinstance(member, DiagonalGaussian)
        found.append((member, part))
    return found


def _full(family: Product) -> FullGaussian:
    member = family.members[0]
    if not is_full(family) or not isinstance(member, FullGaussian):
        raise TypeError(f"neither mean field nor one full Gaussian: {family.members}")
    return member
