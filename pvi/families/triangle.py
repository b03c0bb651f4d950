"""Symmetric matrices as their lower triangles, row by row."""

import torch
from torch import Tensor


def pack(matrix: Tensor) -> Tensor:
    """The lower triangle, ``[..., size, size] -> [..., size (size + 1) / 2]``."""
    rows, columns = torch.tril_indices(*matrix.shape[-2:], device=matrix.device)
    return matrix[..., rows, columns]


def fill(triangle: Tensor, size: int) -> Tensor:
    """The lower-triangular matrix ``[..., size, size]`` of a packed triangle."""
    rows, columns = torch.tril_indices(size, size, device=triangle.device)
    index = torch.zeros(size, size, dtype=torch.long, device=triangle.device)
    index[rows, columns] = torch.arange(rows.shape[0], device=triangle.device)
    filled = triangle[..., index.reshape(-1)].reshape(*triangle.shape[:-1], size, size)
    return filled.tril()


def symmetric(triangle: Tensor, size: int) -> Tensor:
    """The symmetric matrix whose lower triangle is given."""
    lower = fill(triangle, size)
    return lower + lower.tril(-1).mT
