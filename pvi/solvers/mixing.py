"""Anderson acceleration (Walker and Ni, 2011) of several clients' fixed-point iterations, each with its own memory."""

from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family

MEMORY = 6
"""Steps that are mixed."""


class Past(NamedTuple):
    """Where undamped steps led, and how far they went (in standard deviations), in free coordinates.

    ``targets`` and ``residuals [M, MEMORY, num_free]``, the newest last, of which the last ``length [M]`` count.
    """

    targets: Tensor
    residuals: Tensor
    length: Tensor


def nothing(family: Family, natural: Tensor) -> Past:
    """No steps yet, ``natural [M, num_natural]``."""
    empty = natural.new_zeros(len(natural), MEMORY, family.num_free)
    return Past(empty, empty, torch.zeros(len(natural), dtype=torch.long, device=natural.device))


def remember(past: Past, family: Family, natural: Tensor, target: Tensor, usable: Tensor) -> Past:
    """The past with one more step, from ``natural`` to ``target``; forgotten where that is not ``usable [M]``."""
    free = family.free(torch.where(usable[:, None], target, natural))
    residual = (free - family.free(natural)) / family.free_scale(natural)
    return Past(
        torch.cat([past.targets[:, 1:], free[:, None]], 1),
        torch.cat([past.residuals[:, 1:], residual[:, None]], 1),
        torch.where(usable, (past.length + 1).clamp(max=MEMORY), 0),
    )


def mix(past: Past) -> Tensor:
    """Σ α_k target_k with Σ α_k = 1 and the shortest Σ α_k residual_k, ``[M, num_free]``."""
    counts = torch.arange(MEMORY - 1, device=past.length.device) >= MEMORY - past.length[:, None]
    differences = torch.where(counts[..., None], past.residuals[:, -1:] - past.residuals[:, :-1], 0)
    moves = past.targets[:, -1:] - past.targets[:, :-1]
    left, values, right = torch.linalg.svd(differences.mT, full_matrices=False)
    # The shortest of the least-squares solutions.
    least = torch.finfo(values.dtype).eps * max(differences.shape[1:]) * values[:, :1]
    inverse = torch.where(values > least, 1 / values, 0)
    weights = inverse * (past.residuals[:, -1, None] @ left)[:, 0]
    weights = torch.where(counts, (weights[:, None] @ right)[:, 0], 0)
    return past.targets[:, -1] - (weights[:, None] @ moves)[:, 0]
