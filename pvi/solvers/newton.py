"""Deterministic local solves of generalised linear models: exact expectations, Newton steps.

For a linear predictor f = A x + c the expectations under a Gaussian q are one-dimensional. The mean takes a Newton
step with the *full* Hessian Aᵀ W A + Λ_cav (W = -E[∂²log p/∂f²]), also under mean field: the diagonal one is a Jacobi
iteration that diverges on correlated columns. The precision goes to its fixed point Λ_cav + (Aᵀ W A restricted to
the family). Both are damped together until the local free energy does not fall.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import largest_step
from pvi.objectives import LocalProblem, RowExpectations, regulariser, row_expectations
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers.protocol import SolverInfo

MAX_HALVINGS = 30


class NewtonState(NamedTuple):
    """q's natural parameters, the row expectations under q, and F_m(q) in nats."""

    natural: Tensor
    rows: RowExpectations
    free_energy: Tensor


class NewtonInfo(NamedTuple):
    """How far the step aimed: Newton decrement of the mean, largest relative change of a variance; step taken."""

    decrement: Tensor
    spread: Tensor
    step: float


class NotExactError(ValueError):
    """The exact solver was asked to solve a model that is not generalised linear."""


def init(problem: LocalProblem, cavity: Tensor, natural: Tensor, num_nodes: int) -> NewtonState:
    """The state at a proper q; raises :class:`NotExactError` where the model has no linear predictor."""
    if not isinstance(problem.predictor, LinearPredictor):
        raise NotExactError(
            f"client {problem.client!r}: Newton needs a generalised linear model, but {problem.predictor.reason}; "
            "use pvi.solvers.SVI or pvi.solvers.PyroSVI"
        )
    rows = row_expectations(problem.predictor, problem.family, natural, num_nodes)
    return NewtonState(natural, rows, rows.value.sum() + regulariser(problem.family, natural, cavity))


def step(state: NewtonState, problem: LocalProblem, cavity: Tensor, num_nodes: int) -> tuple[NewtonState, NewtonInfo]:
    """One damped Newton step; the state is returned unchanged (step 0) where nothing raises F_m."""
    family, predictor = problem.family, problem.predictor
    assert isinstance(predictor, LinearPredictor)
    design, weights = predictor.design, -state.rows.second
    loc = family.location(state.natural)
    pull = torch.func.grad(lambda x: (cavity * family.statistics(x)).sum())(loc)
    gradient = design.mT @ state.rows.first + pull
    hessian = design.mT @ (weights[:, None] * design) + family.precision_matrix(cavity)
    direction = _ascent(hessian, gradient)
    target = cavity + family.quadratic(torch.zeros_like(loc), design, weights, torch.zeros_like(loc))
    change = target - state.natural
    variance = family.variance(state.natural)
    reachable = float(largest_step(family, state.natural, change))
    spread = (family.variance(state.natural + reachable * change) / variance - 1).abs().max()
    info = NewtonInfo((gradient * direction).sum().clamp(min=0).sqrt(), spread, 0.0)
    # Rounding in F_m, a sum over rows, must not stop a step that is right.
    slack = 64 * torch.finfo(loc.dtype).eps * state.rows.value.abs().sum()
    fraction = reachable
    for _ in range(MAX_HALVINGS):
        natural = family.relocate(state.natural + fraction * change, loc + fraction * direction)
        if bool(family.is_proper(natural)):
            new = init(problem, cavity, natural, num_nodes)
            if new.free_energy >= state.free_energy - slack:
                return new, info._replace(step=fraction)
        fraction = fraction / 2
    return state, info


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

    ``num_nodes`` Gauss-Hermite nodes a row; a solve ends when the Newton decrement (in posterior standard
    deviations) and the relative change of every variance are below ``tolerance``, or after ``max_steps``.
    """

    max_steps: int = 100
    tolerance: float = 1e-9
    num_nodes: int = 32

    @property
    def name(self) -> str:
        """``Newton``."""
        return "Newton"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; deterministic, ``seed`` is not used."""
        tolerance = max(self.tolerance, torch.finfo(start.dtype).eps ** 0.6)
        state = init(problem, cavity, start, self.num_nodes)
        for taken in range(1, self.max_steps + 1):
            state, info = step(state, problem, cavity, self.num_nodes)
            if info.decrement <= tolerance and info.spread <= tolerance:
                return state.natural, SolverInfo(taken, state.free_energy.item(), True, "")
            if info.step == 0.0:
                message = f"no further ascent (decrement {info.decrement:.1e}, spread {info.spread:.1e})"
                return state.natural, SolverInfo(taken, state.free_energy.item(), False, message)
        message = f"not converged after {self.max_steps} steps"
        return state.natural, SolverInfo(self.max_steps, state.free_energy.item(), False, message)
