"""Natural-gradient local solves: damped fixed-point steps, exact or by Monte Carlo, for any exponential family."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.objectives import LocalProblem, regulariser
from pvi.programs.program import num_rows
from pvi.solvers.draws import minibatches
from pvi.solvers.expected import Expectation, NoExactForm, find_expectation, narrowed
from pvi.solvers.fixed_point import distance, fixed_point_step, init, length, step
from pvi.solvers.newton import NotExactError
from pvi.solvers.protocol import SolverInfo, check_variational
from pvi.solvers.sampled import sampled_expectation

FIRST_STEP = 0.1
"""β of the Monte Carlo iteration where none is asked for."""
LONGEST = 1.0
"""Its longest step then, in standard deviations of q."""
STILL = 1e-6
"""A rise in nats that is none."""


@dataclass(frozen=True)
class NaturalGradient:
    """Damped fixed-point steps for any exponential family, discrete ones included.

    ``step_size`` is β. ``None``: where expectations are exact, the largest up to 1 that raises F_m enough; else 0.1.
    ``exact`` asks for exact expectations (by quadrature for generalised linear models, for likelihoods in the family,
    by sums over discrete latents), or with ``False`` for Monte Carlo; ``None`` takes what there is. Monte Carlo uses
    ``num_particles`` draws a step, and ``batch_size`` rows (all where ``None``); from half of the steps on β decreases
    so that the result averages all targets since. An exact solve ends where the fixed point is nearer than
    ``tolerance`` posterior standard deviations.

    Raises:
        NotExactError: with ``exact=True`` where the model allows none, with the reason.
        ValueError: for a discrete family with too many values.
    """

    steps: int = 300
    step_size: float | None = None
    num_particles: int = 32
    batch_size: int | None = None
    exact: bool | None = None
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"NaturalGradient: steps must be at least 1, got {self.steps}")
        if self.step_size is not None and not 0 < self.step_size <= 1:
            raise ValueError(f"NaturalGradient: step_size must lie in (0, 1], got {self.step_size}")
        if self.num_particles < 2 or self.num_particles % 2:
            raise ValueError(f"NaturalGradient: num_particles must be even and at least 2, got {self.num_particles}")
        if self.batch_size is not None and (self.batch_size < 1 or self.exact):
            raise ValueError(
                f"NaturalGradient: batch_size must be at least 1, and mini-batches are not exact; got "
                f"batch_size={self.batch_size}, exact={self.exact}"
            )

    @property
    def name(self) -> str:
        """``NaturalGradient``."""
        return "NaturalGradient"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; ``seed`` fixes draws and mini-batches."""
        check_variational(problem, self.name)
        if self.exact is False or self.batch_size is not None:
            return self._by_draws(problem, cavity, start, seed)
        expectation = find_expectation(problem, start)
        if not isinstance(expectation, NoExactForm):
            return self._exactly(problem, cavity, start, expectation)
        if self.exact:
            raise NotExactError(
                f"client {problem.client!r}: exact expectations need a generalised linear model, a likelihood in the "
                f"family of q or few discrete values, but {expectation.reason}; use NaturalGradient(exact=None)"
            )
        return self._by_draws(problem, cavity, start, seed)

    def _exactly(
        self, problem: LocalProblem, cavity: Tensor, start: Tensor, expectation: Expectation
    ) -> tuple[Tensor, SolverInfo]:
        tolerance = max(self.tolerance, torch.finfo(start.dtype).eps ** 0.6)
        if self.step_size is None:
            start = narrowed(problem, start)
        state, taken, message = init(problem, cavity, start, expectation), 0, ""
        while not (far := distance(problem, cavity, state)) <= tolerance and not message:
            if taken == self.steps:
                message = f"not converged after {taken} steps (distance {far:.1e})"
                break
            taken += 1
            if self.step_size is None:
                state, moved = step(state, problem, cavity, expectation)
            else:
                natural, moved = fixed_point_step(problem, state.natural, cavity, self.step_size, state.expected)
                state = init(problem, cavity, natural, expectation)
            if moved == 0.0:
                message = f"no further ascent (distance {far:.1e})"
        return state.natural, SolverInfo(taken, state.free_energy.item(), not message, message)

    def _by_draws(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        generator = torch.Generator(device=start.device).manual_seed(seed)
        plate = problem.program.sites.subsampling
        total = num_rows(problem.program, problem.batch)
        batches = minibatches(total, self.batch_size if plate is None else plate[2], generator)
        first = FIRST_STEP if self.step_size is None else self.step_size
        natural, estimates, lost = start, [], 0
        for taken, rows in zip(range(self.steps), batches, strict=False):
            expected = sampled_expectation(problem, natural, natural - cavity, self.num_particles, rows, generator)
            estimates.append(expected.value + regulariser(problem.family, natural, cavity))
            size = 1 / (1 / first + max(0, taken - self.steps // 2))
            if self.step_size is None:
                # Far from the fixed point the targets of single draws mean little.
                aim = length(problem, natural, cavity + expected.gradient - natural)
                size = min(size, LONGEST / aim) if math.isfinite(aim) and aim > 0 else size
            natural, taken_size = fixed_point_step(problem, natural, cavity, size, expected)
            lost += taken_size == 0.0
        quarter = max(1, self.steps // 4)
        values = torch.stack(estimates)
        before, last = values[-2 * quarter : -quarter], values[-quarter:]
        message = f"the free energy still rose after {self.steps} steps" if _rises(before, last) else ""
        if lost:
            message = f"{lost} of {self.steps} steps were lost: their gradients are not finite"
        return natural, SolverInfo(self.steps, last.mean().item(), not message, message)


def _rises(before: Tensor, last: Tensor) -> bool:
    """Whether the mean rose by more than its noise; too few values to tell count as a rise."""
    if min(len(before), len(last)) < 2:
        return True
    noise = (before.var() / len(before) + last.var() / len(last)).sqrt()
    return bool(last.mean() - before.mean() > 3 * noise + STILL)
