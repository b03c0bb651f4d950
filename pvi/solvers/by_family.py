"""The solver that a family allows, for programs of which nothing more is known."""

from dataclasses import dataclass

from torch import Tensor

from pvi.families import Product
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem
from pvi.solvers.lbfgs import LBFGS
from pvi.solvers.natural_gradient import NaturalGradient
from pvi.solvers.protocol import Solver, SolverInfo
from pvi.solvers.svi import SVI


def stochastic_solver(family: Product) -> Solver:
    """Functional SVI for Gaussian families; natural gradients for others.

    Draws of discrete members have no derivative, and those of Gamma, Beta and Dirichlet ones a noisy one, which the
    natural gradient's baseline takes away.
    """
    return SVI() if is_gaussian(family) else NaturalGradient()


@dataclass(frozen=True)
class ByFamily:
    """L-BFGS for Gaussian families, else :func:`stochastic_solver`: how the server fits a prior outside the family."""

    @property
    def name(self) -> str:
        """``ByFamily``."""
        return "ByFamily"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`."""
        family = problem.approximation.family
        solver: Solver = LBFGS() if is_gaussian(family) else stochastic_solver(family)
        return solver.solve(problem, cavity, start, seed)
