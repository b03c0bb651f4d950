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

from pvi.blocks import flags, row_expectations, slopes, split, targets
from pvi.families import Product, largest_step
from pvi.quadrature import RowExpectations
from pvi.solvers.curvature import ascent, renewed
from pvi.solvers.mixing import Past, mix, remember
from pvi.solvers.newton_state import Clients, NewtonState, free_energy

MAX_HALVINGS = 20
MAX_GROWTH = 100.0
"""How much a precision may grow in one step."""


class NewtonInfo(NamedTuple):
    """How far the step aimed (Newton decrement of the mean, largest relative change of a variance), and its length.

    Each ``[M]``.
    """

    decrement: Tensor
    spread: Tensor
    step: Tensor


def step(state: NewtonState, clients: Clients, running: Tensor) -> tuple[NewtonState, NewtonInfo]:
    """One damped Newton step of the clients that are ``running [M]``.

    A client's state is returned unchanged (step 0) where nothing raises F_m.
    """
    family, natural = clients.family, state.natural
    weights = [-rows.second for rows in state.rows]
    loc = family.location(natural)
    parts = [targets(block, family, one) for block, one in zip(clients.blocks, weights, strict=True)]
    curved = torch.cat(parts)
    curvature = renewed(state.curvature, family, clients.blocks, weights, curved, running)
    gradient = torch.cat([slopes(block, rows.first) for block, rows in zip(clients.blocks, state.rows, strict=True)])
    gradient = gradient + clients.slope - (clients.precision @ loc[..., None])[..., 0]
    direction = ascent(curvature.matrix + clients.precision, gradient)
    target = clients.cavity + curved
    change = target - natural
    reachable = _reachable(family, natural, change)
    moved = family.variance(natural + reachable[:, None] * change)
    spread = (moved / family.variance(natural) - 1).abs().amax(-1)
    plain = family.relocate(target, loc + direction)
    past = remember(state.past, family, natural, plain, (reachable == 1) & family.is_proper(plain))
    new, taken = _climb(state, clients, running, past, loc, change, direction, reachable)
    info = NewtonInfo((gradient * direction).sum(-1).clamp(min=0).sqrt(), spread, taken)
    return new._replace(curvature=curvature), info


def _reachable(family: Product, natural: Tensor, change: Tensor) -> Tensor:
    """The fraction ``[M]`` of a change that leaves q proper and lets its precision grow by what is sensible at most."""
    # A precision far from its fixed point aims at anything: E[exp f] under a wide q asks for 1e50.
    limit = (MAX_GROWTH - 1) * natural
    whole = family.is_proper(natural + change) & family.is_proper(limit - change)
    if bool(whole.all()):
        return torch.ones_like(natural[:, 0])
    fraction = torch.minimum(largest_step(family, natural, change), family.boundary(limit, -change))
    return torch.where(whole, 1.0, fraction)


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
        energy = free_energy(clients, tried, rows)
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


def _rows(
    clients: Clients, natural: Tensor, last: Sequence[RowExpectations], needed: Tensor
) -> tuple[RowExpectations, ...]:
    """Row expectations of the blocks in which a client needs them, the ``last`` ones in others."""
    wanted = [index for index, part in enumerate(flags(clients.blocks, needed)) if any(part)]
    parts, blocks = split(clients.blocks, natural), clients.blocks
    new = row_expectations([blocks[k] for k in wanted], clients.family, [parts[k] for k in wanted])
    found = dict(zip(wanted, new, strict=True))
    return tuple(found.get(index, old) for index, old in enumerate(last))


def _merged(
    clients: Clients,
    old: Sequence[RowExpectations],
    new: Sequence[RowExpectations],
    accepted: Tensor,
    running: Tensor,
) -> tuple[RowExpectations, ...]:
    """The new expectations of clients that accepted them; those of clients that are done make no difference."""
    found = []
    sides = zip(flags(clients.blocks, accepted), flags(clients.blocks, ~accepted & running), strict=True)
    parts = zip(old, new, split(clients.blocks, accepted), sides, strict=True)
    for before, after, chosen, (some, others) in parts:
        if not any(others):
            found.append(after)
        elif not any(some):
            found.append(before)
        else:
            pairs = zip(after, before, strict=True)
            found.append(RowExpectations(*[torch.where(chosen[:, None], *pair) for pair in pairs]))
    return tuple(found)
