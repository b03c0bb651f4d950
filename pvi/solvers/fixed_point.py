"""The fixed-point iteration of PVI's local problem, one damped natural-gradient step at a time.

A maximum of F_m satisfies η = η_cav + ∇_μ E_q[log p(y_m | θ)] (paper, section 2.3), and

    η ← (1 - β) η + β (η_cav + ∇_μ E_q[log p(y_m | θ)])

is a natural-gradient step of length β. Undamped under mean field it is a Jacobi iteration, which diverges on correlated
columns: :func:`step` halves β until F_m rises as its slope promises.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import largest_step
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem, regulariser
from pvi.solvers.expected import Expectation, Expected

MAX_HALVINGS = 30
MAX_GROWTH = 100.0
"""How much a Gaussian's precision may grow in one step: where q is wide, targets mean little."""
SUFFICIENT = 0.25
"""Part of the rise that the slope promises which a step must bring."""


class FixedPointState(NamedTuple):
    """η, E_q[log p(y_m | θ)] with its gradient, F_m in nats, and the last β."""

    natural: Tensor
    expected: Expected
    free_energy: Tensor
    step_size: float = 1.0


def fixed_point_step(
    problem: LocalProblem, natural: Tensor, cavity: Tensor, step_size: float, expected: Expected
) -> tuple[Tensor, float]:
    """(1 - β) η + β (η_cav + ∇_μ E_q[log p]), and β: ``step_size``, or less where the result would be improper.

    η itself and β = 0 where the gradient is not finite.
    """
    change = cavity + expected.gradient - natural
    if not bool(torch.isfinite(change).all()):
        return natural, 0.0
    fraction = float(largest_step(problem.family, natural, step_size * change))
    return natural + fraction * step_size * change, fraction * step_size


def lowered(problem: LocalProblem, natural: Tensor, change: Tensor) -> Tensor:
    """F(η) δ: the gradient in η of a function whose natural gradient is δ. δ·F δ is the squared length of δ."""
    # F = ∂μ/∂η is symmetric: reverse mode does.
    found: Tensor = torch.func.grad(lambda natural: (problem.family.mean_parameters(natural) * change).sum())(natural)
    return found


def length(problem: LocalProblem, natural: Tensor, change: Tensor) -> float:
    """√(δ·F(η) δ): how long a change of η is, in posterior standard deviations as Fisher's metric measures them."""
    return (change * lowered(problem, natural, change)).sum().clamp(min=0).sqrt().item()


def distance(problem: LocalProblem, cavity: Tensor, state: FixedPointState) -> float:
    """How far the target is from η, in posterior standard deviations."""
    return length(problem, state.natural, cavity + state.expected.gradient - state.natural)


def init(problem: LocalProblem, cavity: Tensor, natural: Tensor, expectation: Expectation) -> FixedPointState:
    """The state at a proper η."""
    expected = expectation(natural)
    return FixedPointState(natural, expected, expected.value + regulariser(problem.family, natural, cavity))


def step(
    state: FixedPointState, problem: LocalProblem, cavity: Tensor, expectation: Expectation
) -> tuple[FixedPointState, float]:
    """One step whose β is searched for, and β; the state comes back (β = 0) where F_m does not rise enough at any."""
    change = cavity + state.expected.gradient - state.natural
    slope = (change * lowered(problem, state.natural, change)).sum().clamp(min=0)
    slack = 64 * torch.finfo(slope.dtype).eps * (state.expected.value.abs() + state.free_energy.abs())
    grown = 1.0
    if is_gaussian(problem.family):
        grown = float(problem.family.boundary((MAX_GROWTH - 1) * state.natural, -change))
    # What rounding hides is no reason to try a longer step.
    size = min(1.0, 2 * state.step_size) if slope > slack else state.step_size
    for _ in range(MAX_HALVINGS):
        natural, taken = fixed_point_step(problem, state.natural, cavity, min(size, grown), state.expected)
        new = init(problem, cavity, natural, expectation)
        if new.free_energy >= state.free_energy + SUFFICIENT * taken * slope - slack:
            return new._replace(step_size=size), taken
        size = size / 2
    return state, 0.0
