"""Deterministic local solves of generalised linear models: exact expectations, Newton steps.

For a linear predictor f = A x + c the expectations under a Gaussian q are one-dimensional. The mean takes a Newton
step with the *full* Hessian Aᵀ W A + Λ_cav (W = -E[∂²log p/∂f²]), also under mean field: the diagonal one is a Jacobi
iteration that diverges on correlated columns. The precision goes to its fixed point Λ_cav + (Aᵀ W A restricted to
the family). Both are damped together until the local free energy does not fall.

The precision's fixed point alone converges slowly where a client's rows barely determine it. Anderson acceleration of
the whole step (Walker and Ni, 2011) mends that; it too is kept only where the free energy does not fall.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import largest_step
from pvi.objectives import LocalProblem, regulariser, row_expectations
from pvi.programs.linear_predictor import LinearPredictor
from pvi.quadrature import RowExpectations
from pvi.solvers.expected import narrowed
from pvi.solvers.protocol import SolverInfo, check_variational

MAX_HALVINGS = 20
MAX_GROWTH = 100.0
"""How much a precision may grow in one step."""
STALE = 0.01
"""Change of the weights up to which a Hessian is used again: it slows the mean's convergence to this rate at worst."""
MEMORY = 6
"""Steps that Anderson acceleration mixes."""


class Past(NamedTuple):
    """Where an undamped step led, and how far it went (in standard deviations), both in free coordinates."""

    target: Tensor
    residual: Tensor


class Curvature(NamedTuple):
    """Aᵀ W A and the weights W that it was computed with."""

    weights: Tensor
    matrix: Tensor


class NewtonState(NamedTuple):
    """q's natural parameters, the row expectations under q, F_m(q) in nats, the last steps and the last Hessian."""

    natural: Tensor
    rows: RowExpectations
    free_energy: Tensor
    past: tuple[Past, ...] = ()
    curvature: Curvature | None = None


class NewtonInfo(NamedTuple):
    """How far the step aimed: Newton decrement of the mean, largest relative change of a variance; step taken."""

    decrement: Tensor
    spread: Tensor
    step: float


class NotExactError(ValueError):
    """The exact solver was asked to solve a model that is not generalised linear."""


def init(problem: LocalProblem, cavity: Tensor, natural: Tensor) -> NewtonState:
    """The state at a proper q; raises :class:`NotExactError` where the model has no linear predictor."""
    if not isinstance(problem.predictor, LinearPredictor):
        raise NotExactError(
            f"client {problem.client!r}: Newton needs a generalised linear model, but {problem.predictor.reason}; "
            "use pvi.solvers.SVI or pvi.solvers.PyroSVI"
        )
    rows = row_expectations(problem.predictor, problem.family, natural)
    return NewtonState(natural, rows, rows.value.sum() + regulariser(problem.family, natural, cavity))


def step(state: NewtonState, problem: LocalProblem, cavity: Tensor) -> tuple[NewtonState, NewtonInfo]:
    """One damped Newton step; the state is returned unchanged (step 0) where nothing raises F_m."""
    family, predictor = problem.family, problem.predictor
    assert isinstance(predictor, LinearPredictor)
    design, weights = predictor.design, -state.rows.second
    loc = family.location(state.natural)
    pull = torch.func.grad(lambda x: (cavity * family.statistics(x)).sum())(loc)
    gradient = design.mT @ state.rows.first + pull
    curvature = _curvature(state.curvature, design, weights)
    direction = _ascent(curvature.matrix + family.precision_matrix(cavity), gradient)
    target = cavity + family.quadratic(torch.zeros_like(loc), design, weights, torch.zeros_like(loc))
    change = target - state.natural
    variance = family.variance(state.natural)
    # A precision far from its fixed point aims at anything: E[exp f] under a wide q asks for 1e50.
    growth = float(family.boundary((MAX_GROWTH - 1) * state.natural, -change))
    reachable = min(float(largest_step(family, state.natural, change)), growth)
    spread = (family.variance(state.natural + reachable * change) / variance - 1).abs().max()
    info = NewtonInfo((gradient * direction).sum().clamp(min=0).sqrt(), spread, 0.0)
    # Rounding in F_m, a sum over rows, must not stop a step that is right.
    slack = 64 * torch.finfo(loc.dtype).eps * state.rows.value.abs().sum()
    plain = family.relocate(target, loc + direction)
    past = _remember(state, problem, plain) if reachable == 1 and bool(family.is_proper(plain)) else ()
    if len(past) > 1:
        new = init(problem, cavity, family.natural_from_free(_mix(past)))
        if new.free_energy >= state.free_energy - slack:
            return new._replace(past=past, curvature=curvature), info._replace(step=1.0)
    fraction = reachable
    for _ in range(MAX_HALVINGS):
        natural = family.relocate(state.natural + fraction * change, loc + fraction * direction)
        if bool(family.is_proper(natural)):
            new = init(problem, cavity, natural)
            if new.free_energy >= state.free_energy - slack:
                kept = past if fraction == 1 else ()
                return new._replace(past=kept, curvature=curvature), info._replace(step=fraction)
        fraction = fraction / 2
    return state, info


def _curvature(last: Curvature | None, design: Tensor, weights: Tensor) -> Curvature:
    """Aᵀ W A, or the last one while W has hardly moved: n d² products are most of a step's work."""
    if last is not None and (weights - last.weights).abs().sum() <= STALE * weights.abs().sum():
        return last
    return Curvature(weights, design.mT @ (weights[:, None] * design))


def _remember(state: NewtonState, problem: LocalProblem, target: Tensor) -> tuple[Past, ...]:
    family = problem.family
    free = family.free(target)
    residual = (free - family.free(state.natural)) / family.free_scale(state.natural)
    return (*state.past[1 - MEMORY :], Past(free, residual))


def _mix(past: tuple[Past, ...]) -> Tensor:
    """Σ α_k target_k with Σ α_k = 1 and the shortest Σ α_k residual_k."""
    last = past[-1]
    differences = torch.stack([last.residual - one.residual for one in past[:-1]], 1)
    weights = torch.linalg.lstsq(differences, last.residual[:, None], driver="gelsd").solution[:, 0]
    moves = torch.stack([last.target - one.target for one in past[:-1]], 1)
    return last.target - moves @ weights


def _ascent(hessian: Tensor, gradient: Tensor) -> Tensor:
    """H⁻¹ g with H made positive definite where an improper cavity leaves it indefinite."""
    shift = 0.0
    largest = hessian.diagonal().abs().max().clamp(min=1e-12).item()
    for _ in range(20):
        shifted = hessian + shift * torch.eye(len(hessian), dtype=hessian.dtype, device=hessian.device)
        cholesky, failed = torch.linalg.cholesky_ex(shifted)
        if not failed:
            return torch.cholesky_solve(gradient[:, None], cholesky)[:, 0]
        shift = max(10 * shift, 1e-6 * largest)
    return gradient / largest


@dataclass(frozen=True)
class Newton:
    """Exact local solves for generalised linear models and Gaussian families.

    A solve ends when the Newton decrement (in posterior standard
    deviations) and the relative change of every variance are below ``tolerance``, or after ``max_steps``.
    """

    max_steps: int = 100
    tolerance: float = 1e-6

    @property
    def name(self) -> str:
        """``Newton``."""
        return "Newton"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; deterministic, ``seed`` is not used."""
        check_variational(problem, self.name)
        tolerance = max(self.tolerance, torch.finfo(start.dtype).eps ** 0.6)
        state = init(problem, cavity, narrowed(problem, start))
        for taken in range(1, self.max_steps + 1):
            state, info = step(state, problem, cavity)
            if info.decrement <= tolerance and info.spread <= tolerance:
                return state.natural, SolverInfo(taken, state.free_energy.item(), True, "")
            if info.step == 0.0:
                message = f"no further ascent (decrement {info.decrement:.1e}, spread {info.spread:.1e})"
                return state.natural, SolverInfo(taken, state.free_energy.item(), False, message)
        message = f"not converged after {self.max_steps} steps"
        return state.natural, SolverInfo(self.max_steps, state.free_energy.item(), False, message)
