"""The solver that a family allows, for programs of which nothing more is known."""

from dataclasses import dataclass

from torch import Tensor

from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem
from pvi.solvers.lbfgs import LBFGS
from pvi.solvers.protocol import Solver, SolverInfo
from pvi.solvers.svi import SVI


@dataclass(frozen=True)
class ByFamily:
    """L-BFGS for Gaussian families, functional SVI for others: how the server solves its own problem, the prior."""

    @property
    def name(self) -> str:
        """``ByFamily``."""
        return "ByFamily"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`."""
        solver: Solver = LBFGS() if is_gaussian(problem.family) else SVI()
        return solver.solve(problem, cavity, start, seed)
