"""The Hessians of Newton's steps, and what becomes of them where they are indefinite."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.blocks import Block, flags, hessians, is_dense, split
from pvi.families import Product

STALE = 0.01
"""Change of the weights up to which a Hessian is used again: it slows the mean's convergence to this rate at worst."""


class Curvature(NamedTuple):
    """Aᵀ W A ``[M, size, size]`` and the weights W that it was computed with, ``[m, n]`` by block."""

    weights: tuple[Tensor, ...]
    matrix: Tensor


def renewed(
    last: Curvature | None,
    family: Product,
    blocks: Sequence[Block],
    weights: Sequence[Tensor],
    curved: Tensor,
    running: Tensor,
) -> Curvature:
    """Aᵀ W A, or the last one while W has hardly moved: n d² products are most of a step's work.

    ``curved [M, num_natural]`` is its restriction to the family.
    """
    if is_dense(family):
        return Curvature(tuple(weights), family.precision_matrix(curved))
    if last is None:
        pairs = zip(blocks, weights, strict=True)
        fresh = [hessians(block, one, range(block.num_clients)) for block, one in pairs]
        return Curvature(tuple(weights), torch.cat(fresh))
    both = list(zip(weights, last.weights, strict=True))
    stale = torch.cat([(new - old).abs().sum(-1) > STALE * new.abs().sum(-1) for new, old in both]) & running
    if not bool(stale.any()):
        return last
    kept, matrices = [], list[Tensor]()
    parts = zip(blocks, split(blocks, last.matrix), both, flags(blocks, stale), strict=True)
    for block, matrix, (new, old), moved in parts:
        chosen = [index for index, flag in enumerate(moved) if flag]
        if len(chosen) == len(moved):
            kept.append(new)
            matrices.append(hessians(block, new, chosen))
        elif chosen:
            kept.append(torch.where(stale.new_tensor(moved)[:, None], new, old))
            matrix = matrix.clone()
            matrix[chosen] = hessians(block, new, chosen)
            matrices.append(matrix)
        else:
            kept.append(old)
            matrices.append(matrix)
    return Curvature(tuple(kept), torch.cat(matrices))


def ascent(hessian: Tensor, gradient: Tensor) -> Tensor:
    """H⁻¹ g with H made positive definite where an improper cavity leaves it indefinite."""
    largest = hessian.diagonal(dim1=-2, dim2=-1).abs().amax(-1).clamp(min=1e-12)
    cholesky, failed = torch.linalg.cholesky_ex(hessian)
    if bool(failed.any()):
        shift, eye = torch.zeros_like(largest), torch.eye(hessian.shape[-1]).to(hessian)
        for _ in range(19):
            shift = torch.where(failed > 0, torch.maximum(10 * shift, 1e-6 * largest), shift)
            cholesky, failed = torch.linalg.cholesky_ex(hessian + shift[:, None, None] * eye)
            if not bool(failed.any()):
                break
    solution = torch.cholesky_solve(gradient[..., None], cholesky)[..., 0]
    return torch.where(failed[:, None] > 0, gradient / largest[:, None], solution)
