"""L-BFGS ascent of any differentiable function: the two-loop recursion and a line search that kinks do not trouble."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MEMORY = 20
"""Pairs of steps and gradient changes kept."""
MAX_TRIALS = 40
"""Points tried along one line."""
SUFFICIENT, FLAT = 1e-4, 0.9
"""The weak Wolfe conditions: of the rise that the slope promises at least, of the slope at most."""

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""F and its gradient at offsets ``[num_free]``."""


class LBFGSState(NamedTuple):
    """Offsets ``[num_free]``, F there in nats, its gradient, and the last steps with their changes of gradient."""

    offset: Tensor
    value: Tensor
    gradient: Tensor
    pairs: tuple[tuple[Tensor, Tensor], ...] = ()


class LBFGSInfo(NamedTuple):
    """√(gᵀ B g), B the approximate inverse Hessian: how far the optimum is, in standard deviations. The step taken."""

    decrement: float
    step: float


def init(offset: Tensor, objective: Objective) -> LBFGSState:
    """The state at the offsets."""
    return LBFGSState(offset, *objective(offset))


def step(state: LBFGSState, objective: Objective) -> tuple[LBFGSState, LBFGSInfo]:
    """One step up (Nocedal and Wright, algorithm 7.5); the state comes back (step 0) where no point is higher."""
    direction = _two_loops(state)
    slope = state.gradient @ direction
    decrement = slope.clamp(min=0).sqrt().item()
    length = 1.0 if state.pairs else min(1.0, 1.0 / max(direction.norm().item(), 1e-300))
    found = _search(state, direction, slope, length, objective)
    if found is None:
        return state, LBFGSInfo(decrement, 0.0)
    taken, offset, value, gradient = found
    moved, turned = offset - state.offset, state.gradient - gradient
    pairs = state.pairs
    if moved @ turned > 1e-10 * turned @ turned:
        pairs = (*pairs[1 - MEMORY :], (moved, turned))
    return LBFGSState(offset, value, gradient, pairs), LBFGSInfo(decrement, taken)


def _two_loops(state: LBFGSState) -> Tensor:
    """B g."""
    direction, weights = state.gradient, []
    for moved, turned in reversed(state.pairs):
        weight = (moved @ direction) / (moved @ turned)
        weights.append(weight)
        direction = direction - weight * turned
    if state.pairs:
        moved, turned = state.pairs[-1]
        direction = direction * (moved @ turned) / (turned @ turned)
    for (moved, turned), weight in zip(state.pairs, reversed(weights), strict=True):
        direction = direction + (weight - (turned @ direction) / (moved @ turned)) * moved
    return direction


def _search(
    state: LBFGSState, direction: Tensor, slope: Tensor, length: float, objective: Objective
) -> tuple[float, Tensor, Tensor, Tensor] | None:
    """A step that meets the weak Wolfe conditions, by doubling and bisection, which kinks do not trouble.

    (Lewis and Overton, 2013.) The highest point tried where none meets them.
    """
    low, high, best = 0.0, float("inf"), None
    slack = 16 * torch.finfo(state.value.dtype).eps * state.value.abs()
    for _ in range(MAX_TRIALS):
        offset = state.offset + length * direction
        value, gradient = objective(offset)
        finite = bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all())
        if finite and value > (state.value if best is None else best[2]):
            best = (length, offset, value, gradient)
        if not finite or value < state.value + SUFFICIENT * length * slope - slack:
            high = length
        elif gradient @ direction > FLAT * slope:
            low = length
        else:
            return length, offset, value, gradient
        length = 2 * low if high == float("inf") else 0.5 * (low + high)
    return best
