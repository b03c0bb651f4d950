"""Power EP inside a client, one factor a row: the alpha divergence of generalised linear models (Minka, 2004).

The alpha divergence does not decompose over rows, so the rows are the factors: "it would be appropriate to set M = N"
(paper, section 4). A visit refines them in parallel until they stand still; their product is the client's factor. The
fixed point of the whole run is the power-EP posterior of the pooled rows, however they are split.

The mean moves by a Newton step with the full Hessian, under independent coordinates too: the plain update is a Jacobi
iteration there, which diverges on correlated columns. Both have the same fixed points.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import GaussianFamily, largest_step
from pvi.objectives import LocalProblem, local_free_energy
from pvi.solvers.protocol import SolverInfo
from pvi.solvers.row_sites import Layout, NoLayout, Sites, empty, find_layout, refine
from pvi.solvers.tilted import Window

MIN_DAMPING = 2.0**-10
PATIENCE = 8
"""Undamped steps that bring q no nearer before they are damped: movements oscillate where all is well."""
MAX_SCALE = 4.0
"""Standard deviation of a row's predictor that a solve starts with at most: E[exp f] is finite then."""


class RowEPState(NamedTuple):
    """q's natural parameters, the rows' factors, where to look for r, and the damping.

    q need not be cavity · Π t_i on the way: a step with damping ρ takes a part ρ of the discrepancy away.
    ``nearest`` is the smallest movement so far, ``since`` counts the steps after it.
    """

    natural: Tensor
    sites: Sites
    window: Window | None = None
    damping: float = 1.0
    nearest: float = torch.inf
    since: int = 0


class RowEPInfo(NamedTuple):
    """How far an undamped step aims, rows that kept their factor, and EP's free energy before the step, nats.

    ``movement`` is the largest of: change of a mean in standard deviations, relative change of a variance, change
    of a factor's precision relative to q's.
    """

    movement: float
    skipped: int
    free_energy: Tensor


def init(rows: Layout, family: GaussianFamily, start: Tensor) -> RowEPState:
    """All factors 1 at a proper q: the first step takes q itself, narrowed to be of use, for every row's cavity."""
    scale = family.predictor_variance(start, rows.predictor.design).max().sqrt()
    return RowEPState(start * (scale / MAX_SCALE).square().clamp(min=1), empty(rows))


def step(
    state: RowEPState, rows: Layout, family: GaussianFamily, cavity: Tensor, alpha: float
) -> tuple[RowEPState, RowEPInfo]:
    """All rows refined from the same q, which stays proper; the damping is halved where steps lead no nearer."""
    natural, sites = state.natural, state.sites
    found = refine(rows, natural, sites, alpha, state.window)
    target = cavity + rows.factor(found.sites)
    change = target - natural
    loc, variance = family.location(natural), family.variance(natural)
    reach = float(largest_step(family, natural, change))
    reached = natural + reach * change
    direction = _newton(rows, family, cavity, found.weights, target, loc)
    aim = family.location(reached) - loc if direction is None else direction
    moves = (
        aim.abs() / variance.sqrt(),
        (family.variance(reached) / variance - 1).abs(),
        ((found.sites.precision - sites.precision) / rows.marginals(natural).precision).abs(),
    )
    movement = torch.stack([move.max() for move in moves]).max().item()
    nearest, since = (movement, 0) if movement < state.nearest else (state.nearest, state.since + 1)
    damping, since = (state.damping / 2, 0) if since * state.damping >= PATIENCE else (state.damping, since)
    fraction = min(reach, damping)
    moved = natural + fraction * change
    if direction is not None:
        moved = family.relocate(moved, loc + fraction * direction)
    partly = Sites(*(old + fraction * (new - old) for old, new in zip(sites, found.sites, strict=True)))
    # A(cavity · Π t) to first order: q is not that product before the end.
    stray = ((cavity + rows.factor(sites) - natural) * family.mean_parameters(natural)).sum()
    info = RowEPInfo(movement, found.skipped, found.log_scale + family.log_partition(natural) + stray)
    return RowEPState(moved, partly, found.window, damping, nearest, since), info


def _newton(
    rows: Layout, family: GaussianFamily, cavity: Tensor, weights: Tensor, target: Tensor, loc: Tensor
) -> Tensor | None:
    """(Λ_cav + Aᵀ W A)⁻¹ (h - Λ m) with the target's h and Λ; ``None`` where the matrix is not positive definite."""
    design = rows.predictor.design
    gradient = torch.func.grad(lambda x: (target * family.statistics(x)).sum())(loc)
    hessian = family.precision_matrix(cavity) + design.mT @ (weights[:, None] * design)
    cholesky, failed = torch.linalg.cholesky_ex(hessian)
    return None if failed else torch.cholesky_solve(gradient[:, None], cholesky)[:, 0]


@dataclass(frozen=True)
class RowEP:
    """Power EP for generalised linear models and Gaussian families, with ``problem.alpha`` in [0, 1].

    The family must be one full-covariance Gaussian, or independent coordinates throughout. A solve ends when no
    movement (see :class:`RowEPInfo`) exceeds ``tolerance``, or after ``max_steps``. Alpha 0 is its limit, the
    variational fixed point.

    The free energy reported is EP's, (1/α) Σ log ∫ q (p_i / t_i)^α + A(η), with the cavity counted as exp(η_cav·T); for
    alpha = 0 it is F_m. It estimates a log evidence and bounds nothing.
    """

    max_steps: int = 500
    tolerance: float = 1e-8

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError(f"RowEP: max_steps must be at least 1, got {self.max_steps}")
        if self.tolerance <= 0:
            raise ValueError(f"RowEP: tolerance must be positive, got {self.tolerance}")

    @property
    def name(self) -> str:
        """``RowEP``."""
        return "RowEP"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; deterministic, ``seed`` is not used.

        Raises ``ValueError`` for a model or a family that it does not cover.
        """
        tolerance = max(self.tolerance, torch.finfo(start.dtype).eps ** 0.6)
        rows = find_layout(problem)
        if isinstance(rows, NoLayout):
            raise ValueError(f"client {problem.client!r}: RowEP: {rows.reason}; or use pvi.solvers.SVI")
        state, converged, taken = init(rows, problem.family, start), False, 0
        while not converged and taken < self.max_steps and state.damping >= MIN_DAMPING:
            state, info = step(state, rows, problem.family, cavity, problem.alpha)
            taken += 1
            converged = info.movement <= tolerance
            if not math.isfinite(info.movement):
                break
        said = [] if converged else [f"power EP still moved by {info.movement:.1e} after {taken} steps"]
        if info.skipped:
            said.append(f"{info.skipped} rows with improper cavities kept their factors")
        energy = info.free_energy.item() if problem.alpha else local_free_energy(problem, state.natural, cavity).value
        return state.natural, SolverInfo(taken, energy, not said, "; ".join(said))
