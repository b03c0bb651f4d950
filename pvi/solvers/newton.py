"""Deterministic local solves of generalised linear models: exact expectations, Newton steps, all clients at once.

For a linear predictor f = A x + c the expectations under a Gaussian q are one-dimensional. The mean takes a Newton
step with the *full* Hessian Aᵀ W A + Λ_cav (W = -E[∂²log p/∂f²]), also under mean field: the diagonal one is a Jacobi
iteration that diverges on correlated columns. The precision goes to its fixed point Λ_cav + (Aᵀ W A restricted to
the family). Both are damped together until the local free energy does not fall.

The precision's fixed point alone converges slowly where a client's rows barely determine it. Anderson acceleration of
the whole step mends that; it too is kept only where the free energy does not fall.

Every client takes its own steps, whoever else is in the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import largest_step
from pvi.objectives import regulariser
from pvi.quadrature import RowExpectations
from pvi.solvers.blocks import Block, Clients, hessians, is_dense, row_expectations, slopes, targets
from pvi.solvers.mixing import Past, mix, nothing, remember

MAX_HALVINGS = 20
MAX_GROWTH = 100.0
"""How much a precision may grow in one step."""
STALE = 0.01
"""Change of the weights up to which a Hessian is used again: it slows the mean's convergence to this rate at worst."""


class Curvature(NamedTuple):
    """Aᵀ W A ``[M, size, size]`` and the weights W that it was computed with, ``[m, n]`` by block."""

    weights: tuple[Tensor, ...]
    matrix: Tensor


class NewtonState(NamedTuple):
    """q's natural parameters ``[M, num_natural]``, the row expectations under q by block, F_m(q) ``[M]`` in nats, the
    last steps and the last Hessian."""

    natural: Tensor
    rows: tuple[RowExpectations, ...]
    free_energy: Tensor
    past: Past
    curvature: Curvature | None = None


class NewtonInfo(NamedTuple):
    """How far the step aimed: Newton decrement of the mean, largest relative change of a variance; step taken; ``[M]``."""

    decrement: Tensor
    spread: Tensor
    step: Tensor


def init(clients: Clients, natural: Tensor) -> NewtonState:
    """The state at proper q, ``[M, num_natural]``."""
    rows = tuple(row_expectations(block, clients.family, part) for block, part in _by_block(clients, natural))
    return NewtonState(natural, rows, _free_energy(clients, natural, rows), nothing(clients.family, natural))


def step(state: NewtonState, clients: Clients, running: Tensor) -> tuple[NewtonState, NewtonInfo]:
    """One damped Newton step of the clients that are ``running [M]``.

    A client's state is returned unchanged (step 0) where nothing raises F_m.
    """
    family, natural = clients.family, state.natural
    weights = [-rows.second for rows in state.rows]
    loc = family.location(natural)
    parts = [targets(block, family, one) for block, one in zip(clients.blocks, weights, strict=True)]
    curved = torch.cat(parts)
    curvature = _curvature(state.curvature, clients, weights, curved, running)
    gradient = torch.cat([slopes(block, rows.first) for block, rows in zip(clients.blocks, state.rows, strict=True)])
    gradient = gradient + clients.slope - (clients.precision @ loc[..., None])[..., 0]
    direction = _ascent(curvature.matrix + clients.precision, gradient)
    target = clients.cavity + curved
    change = target - natural
    # A precision far from its fixed point aims at anything: E[exp f] under a wide q asks for 1e50.
    growth = family.boundary((MAX_GROWTH - 1) * natural, -change)
    reachable = torch.minimum(largest_step(family, natural, change), growth)
    moved = family.variance(natural + reachable[:, None] * change)
    spread = (moved / family.variance(natural) - 1).abs().amax(-1)
    plain = family.relocate(target, loc + direction)
    past = remember(state.past, family, natural, plain, (reachable == 1) & family.is_proper(plain))
    new, taken = _climb(state, clients, running, past, loc, change, direction, reachable)
    info = NewtonInfo((gradient * direction).sum(-1).clamp(min=0).sqrt(), spread, taken)
    return new._replace(curvature=curvature), info


def _climb(
    state: NewtonState,
    clients: Clients,
    running: Tensor,
    past: Past,
    loc: Tensor,
    change: Tensor,
    direction: Tensor,
    fraction: Tensor,
) -> tuple[NewtonState, Tensor]:
    """The mixture of the past steps where F_m does not fall there, else the longest of the halved steps; its length."""
    family, natural = clients.family, state.natural
    # Rounding in F_m, a sum over rows, must not stop a step that is right.
    slack = 64 * torch.finfo(loc.dtype).eps * torch.cat([rows.value.abs().sum(-1) for rows in state.rows])
    mixing = past.length > 1
    mixed = family.natural_from_free(mix(past)) if bool((mixing & running).any()) else natural
    left = MAX_HALVINGS + mixing.long()
    pending, taken, kept = running, torch.zeros_like(fraction), torch.zeros_like(past.length)
    new = state
    while True:
        tried = family.relocate(natural + fraction[:, None] * change, loc + fraction[:, None] * direction)
        tried = torch.where(mixing[:, None], mixed, tried)
        possible = pending & family.is_proper(tried)
        tried = torch.where(possible[:, None], tried, natural)
        rows = _rows(clients, tried, state.rows, possible)
        energy = _free_energy(clients, tried, rows)
        accepted = possible & (energy >= state.free_energy - slack)
        chosen = torch.where(mixing, 1.0, fraction)
        taken = torch.where(accepted, chosen, taken)
        kept = torch.where(accepted & (chosen == 1), past.length, kept)
        new = new._replace(
            natural=torch.where(accepted[:, None], tried, new.natural),
            free_energy=torch.where(accepted, energy, new.free_energy),
            rows=_merged(clients, new.rows, rows, accepted, running),
        )
        left = left - 1
        pending = pending & ~accepted & (left > 0)
        if not bool(pending.any()):
            return new._replace(past=past._replace(length=kept)), taken
        fraction = torch.where(mixing, fraction, fraction / 2)
        mixing = torch.zeros_like(mixing)


def _by_block(clients: Clients, value: Tensor) -> list[tuple[Block, Tensor]]:
    sizes = [block.num_clients for block in clients.blocks]
    return list(zip(clients.blocks, value.split(sizes), strict=True))


def _free_energy(clients: Clients, natural: Tensor, rows: Sequence[RowExpectations]) -> Tensor:
    return torch.cat([block.value.sum(-1) for block in rows]) + regulariser(clients.family, natural, clients.cavity)


def _rows(
    clients: Clients, natural: Tensor, last: Sequence[RowExpectations], needed: Tensor
) -> tuple[RowExpectations, ...]:
    """Row expectations of the blocks in which a client needs them, the ``last`` ones in others."""
    wanted = [any(flags) for flags in _flags(clients, needed)]
    parts = zip(_by_block(clients, natural), last, wanted, strict=True)
    return tuple(
        row_expectations(block, clients.family, part) if want else old for (block, part), old, want in parts
    )


def _merged(
    clients: Clients,
    old: Sequence[RowExpectations],
    new: Sequence[RowExpectations],
    accepted: Tensor,
    running: Tensor,
) -> tuple[RowExpectations, ...]:
    """The new expectations of clients that accepted them; those of clients that are done make no difference."""
    found = []
    flags = zip(_flags(clients, accepted), _flags(clients, ~accepted & running), strict=True)
    for before, after, (_, chosen), (some, others) in zip(
        old, new, _by_block(clients, accepted), flags, strict=True
    ):
        if not any(others):
            found.append(after)
        elif not any(some):
            found.append(before)
        else:
            pairs = zip(after, before, strict=True)
            found.append(RowExpectations(*[torch.where(chosen[:, None], *pair) for pair in pairs]))
    return tuple(found)


def _flags(clients: Clients, value: Tensor) -> list[list[bool]]:
    flags = iter(value.tolist())
    return [[next(flags) for _ in range(block.num_clients)] for block in clients.blocks]


def _curvature(
    last: Curvature | None, clients: Clients, weights: Sequence[Tensor], curved: Tensor, running: Tensor
) -> Curvature:
    """Aᵀ W A, or the last one while W has hardly moved: n d² products are most of a step's work."""
    if is_dense(clients.family):
        return Curvature(tuple(weights), clients.family.precision_matrix(curved))
    if last is None:
        pairs = zip(clients.blocks, weights, strict=True)
        fresh = [hessians(block, one, range(block.num_clients)) for block, one in pairs]
        return Curvature(tuple(weights), torch.cat(fresh))
    both = list(zip(weights, last.weights, strict=True))
    stale = torch.cat([(new - old).abs().sum(-1) > STALE * new.abs().sum(-1) for new, old in both]) & running
    if not bool(stale.any()):
        return last
    kept, matrices = [], list[Tensor]()
    for (block, matrix), (new, old), flags in zip(
        _by_block(clients, last.matrix), both, _flags(clients, stale), strict=True
    ):
        chosen = [index for index, flag in enumerate(flags) if flag]
        if len(chosen) == len(flags):
            kept.append(new)
            matrices.append(hessians(block, new, chosen))
        elif chosen:
            kept.append(torch.where(stale.new_tensor(flags)[:, None], new, old))
            matrix = matrix.clone()
            matrix[chosen] = hessians(block, new, chosen)
            matrices.append(matrix)
        else:
            kept.append(old)
            matrices.append(matrix)
    return Curvature(tuple(kept), torch.cat(matrices))


def _ascent(hessian: Tensor, gradient: Tensor) -> Tensor:
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
