"""Plain gradient steps on the local free energy in natural parameters, the coordinates that PVI adds up."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families import largest_step
from pvi.objectives import LocalProblem, regulariser
from pvi.solvers.expected import NoExactForm, find_expectation
from pvi.solvers.fixed_point import FixedPointState, distance, lowered
from pvi.solvers.protocol import SolverInfo, check_variational
from pvi.solvers.sampled import sampled_expectation

CONVERGED = 1e-6
"""Posterior standard deviations."""


@dataclass(frozen=True)
class GradientAscent:
    """η ← η + ε ∇_η F_m, ``steps`` times, with ε = ``learning_rate``, or less where q would become improper.

    One step of all clients from one q adds up to one step of global variational inference (paper, theorem 3.1).
    Expectations are exact where they can be, else from ``num_particles`` draws, the same for every client. A study of
    the theory: curvature makes it slow, and :class:`~pvi.solvers.NaturalGradient` is not.
    """

    steps: int = 1
    learning_rate: float = 0.01
    num_particles: int = 256

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"GradientAscent: steps must be at least 1, got {self.steps}")
        if self.learning_rate <= 0:
            raise ValueError(f"GradientAscent: learning_rate must be positive, got {self.learning_rate}")
        if self.num_particles < 2 or self.num_particles % 2:
            raise ValueError(f"GradientAscent: num_particles must be even and at least 2, got {self.num_particles}")

    @property
    def name(self) -> str:
        """``GradientAscent``."""
        return "GradientAscent"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; deterministic, ``seed`` is not used."""
        check_variational(problem, self.name)
        family, exact = problem.family, find_expectation(problem, start)
        generator = torch.Generator(device=start.device)

        def at(natural: Tensor) -> FixedPointState:
            if isinstance(exact, NoExactForm):
                # The baseline 0: one that differs between clients would not add up to that of all.
                generator.manual_seed(0)
                expected = sampled_expectation(
                    problem, natural, torch.zeros_like(natural), self.num_particles, None, generator
                )
            else:
                expected = exact(natural)
            return FixedPointState(natural, expected, expected.value + regulariser(family, natural, cavity))

        state = at(start)
        for _ in range(self.steps):
            gradient = lowered(problem, state.natural, cavity + state.expected.gradient - state.natural)
            change = self.learning_rate * gradient
            state = at(state.natural + largest_step(family, state.natural, change) * change)
        left = distance(problem, cavity, state)
        message = "" if left <= CONVERGED else f"{left:.1e} posterior standard deviations from the fixed point"
        return state.natural, SolverInfo(self.steps, state.free_energy.item(), not message, message)
