"""All values of discrete vectors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pvi.families.protocol import DiscreteFamily, Family

MAX_VALUES = 2**16


def all_rows(sizes: Sequence[int], like: Tensor | None) -> Tensor:
    """Every vector of indices ``i_k < sizes[k]``, ``[prod(sizes), len(sizes)]``, the last coordinate moving fastest.

    Raises ``ValueError`` where there are more than ``MAX_VALUES``.
    """
    count = 1
    for size in sizes:
        count *= size
    if count > MAX_VALUES:
        raise ValueError(f"{count} joint values of {len(sizes)} discrete numbers are too many; {MAX_VALUES} can be")
    dtype = torch.get_default_dtype() if like is None else like.dtype
    device = None if like is None else like.device
    axes = [torch.arange(size, dtype=dtype, device=device) for size in sizes]
    grid = torch.meshgrid(*axes, indexing="ij")
    return torch.stack(grid, -1).reshape(count, len(sizes))


def joint_values(members: Sequence[Family], like: Tensor | None) -> Tensor:
    """Every combination of the members' values end to end.

    Raises ``TypeError`` for a member that is not discrete, ``ValueError`` beyond ``MAX_VALUES``.
    """
    values = []
    for member in members:
        if not isinstance(member, DiscreteFamily):
            raise TypeError(f"only discrete families can be enumerated, not {member}")
        values.append(member.enumerate(like))
    table = all_rows([len(value) for value in values], None).long()
    return torch.cat([value[table[:, k].to(value.device)] for k, value in enumerate(values)], -1)
