"""Products of designs A ``[..., n, size]`` with vectors: one design, or one a client.

A product of many matrices with a vector each is slow as ``A @ x[..., None]`` (torch takes its general kernel) and
fast as a row vector times a matrix.
"""

from torch import Tensor


def predicted(design: Tensor, x: Tensor) -> Tensor:
    """A x, ``x [..., size] -> [..., n]``."""
    if x.ndim == 1:
        return design @ x
    if x.ndim == 2 and len(x) == 1 and design.ndim == 3:
        return (design[0] @ x[0])[None]
    return (x[..., None, :] @ design.mT)[..., 0, :]


def combined(design: Tensor, weights: Tensor) -> Tensor:
    """Aᵀ w, ``weights [..., n] -> [..., size]``."""
    if weights.ndim == 1:
        return design.mT @ weights
    if weights.ndim == 2 and len(weights) == 1 and design.ndim == 3:
        return (design[0].mT @ weights[0])[None]
    return (weights[..., None, :] @ design)[..., 0, :]


def curvature(design: Tensor, weights: Tensor) -> Tensor:
    """Aᵀ diag(w) A, ``weights [..., n] -> [..., size, size]``."""
    return design.mT @ (weights[..., None] * design)
