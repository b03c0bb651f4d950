"""The solver that a family allows, for programs of which nothing more is known."""

from dataclasses import dataclass

from torch import Tensor

from pvi.families import Product
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers.lbfgs import LBFGS
from pvi.solvers.natural_gradient import NaturalGradient
from pvi.solvers.newton import Newton
from pvi.solvers.protocol import Solver, SolverInfo
from pvi.solvers.svi import SVI


def stochastic_solver(family: Product) -> Solver:
    """Functional SVI for Gaussian families; natural gradients for others.

    Draws of discrete members have no derivative, and those of Gamma, Beta and Dirichlet ones a noisy one, which the
    natural gradient's baseline takes away.
    """
    return SVI() if is_gaussian(family) else NaturalGradient()


MAX_DRAWS = 8192
"""Draws of the latents at most: a full covariance over 29 of them is then 0.03 nats short at worst."""


@dataclass(frozen=True)
class ByFamily:
    """How the server fits a prior outside the family.

    Newton where the prior's elements are independent; else L-BFGS on fixed draws for Gaussian families, and
    :func:`stochastic_solver` for others.
    """

    @property
    def name(self) -> str:
        """``ByFamily``."""
        return "ByFamily"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`."""
        family = problem.approximation.family
        solver: Solver
        if isinstance(problem.predictor, LinearPredictor):
            solver = Newton()
        elif is_gaussian(family):
            solver = LBFGS(num_samples=min(MAX_DRAWS, 64 * family.num_free))
        else:
            solver = stochastic_solver(family)
        return solver.solve(problem, cavity, start, seed)
