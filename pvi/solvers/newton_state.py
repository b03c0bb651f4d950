"""Where many clients' Newton solves are, and what stays the same over them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.blocks import Block, flags, row_expectations, split, variances
from pvi.families import Product
from pvi.objectives import regulariser
from pvi.quadrature import RowExpectations
from pvi.solvers.curvature import Curvature
from pvi.solvers.expected import MAX_SCALE
from pvi.solvers.mixing import Past, nothing


class Clients(NamedTuple):
    """What stays the same over a solve for M clients of one family, in the order of the ``blocks``.

    Of the ``cavity [M, num_natural]`` ``slope [M, size]`` is its gradient in x at 0, ``precision [M, size, size]`` its
    precision.
    """

    family: Product
    blocks: tuple[Block, ...]
    cavity: Tensor
    slope: Tensor
    precision: Tensor


class NewtonState(NamedTuple):
    """Where M clients' solves are: ``natural [M, num_natural]`` and ``free_energy [M]`` in nats.

    ``rows`` are the expectations under q by block, ``past`` and ``curvature`` the last steps and the last Hessian.
    """

    natural: Tensor
    rows: tuple[RowExpectations, ...]
    free_energy: Tensor
    past: Past
    curvature: Curvature | None = None


def clients_of(family: Product, blocks: tuple[Block, ...], cavity: Tensor) -> Clients:
    """The clients of these blocks, ``cavity [M, num_natural]``."""
    zero = cavity.new_zeros(len(cavity), family.size)
    slope = torch.func.grad(lambda x: (cavity * family.statistics(x)).sum())(zero)
    return Clients(family, blocks, cavity, slope, family.precision_matrix(cavity))


def narrowed(clients: Clients, natural: Tensor) -> Tensor:
    """Starts ``[M, num_natural]``, or ones with their means under which E[exp f] is finite for every row's f."""
    parts = zip(clients.blocks, split(clients.blocks, natural), strict=True)
    widest = [variances(block, clients.family, part).amax(-1) for block, part in parts]
    return natural * (torch.cat(widest)[:, None].sqrt() / MAX_SCALE).square().clamp(min=1)


def init(clients: Clients, natural: Tensor) -> NewtonState:
    """The state at proper q, ``[M, num_natural]``."""
    rows = tuple(row_expectations(clients.blocks, clients.family, split(clients.blocks, natural)))
    return NewtonState(natural, rows, free_energy(clients, natural, rows), nothing(clients.family, natural))


def free_energy(clients: Clients, natural: Tensor, rows: Sequence[RowExpectations]) -> Tensor:
    """F_m(q) of every client, ``[M]`` in nats."""
    return torch.cat([block.value.sum(-1) for block in rows]) + regulariser(clients.family, natural, clients.cavity)


def leave(clients: Clients, state: NewtonState, running: Sequence[bool]) -> tuple[list[int], Clients, NewtonState]:
    """The clients of blocks in which one is still ``running``, as positions, and what stays of the solve."""
    wanted = [any(part) for part in flags(clients.blocks, torch.tensor(running))]
    if all(wanted):
        return list(range(len(running))), clients, state
    places = split(clients.blocks, torch.arange(len(running), device=state.natural.device))
    kept = torch.cat([part for part, want in zip(places, wanted, strict=True) if want])
    curvature = state.curvature
    if curvature is not None:
        weights = tuple(part for part, want in zip(curvature.weights, wanted, strict=True) if want)
        curvature = Curvature(weights, curvature.matrix[kept])
    blocks = tuple(block for block, want in zip(clients.blocks, wanted, strict=True) if want)
    rows = tuple(part for part, want in zip(state.rows, wanted, strict=True) if want)
    return (
        kept.tolist(),
        Clients(clients.family, blocks, clients.cavity[kept], clients.slope[kept], clients.precision[kept]),
        NewtonState(
            state.natural[kept], rows, state.free_energy[kept], Past(*[part[kept] for part in state.past]), curvature
        ),
    )
