"""Local solvers, one a file."""

from collections.abc import Sequence

from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers.newton import Newton, NotExactError
from pvi.solvers.protocol import Solver, SolverInfo
from pvi.solvers.pyro_svi import PyroSVI
from pvi.solvers.svi import SVI


def default_solver(problems: Sequence[LocalProblem]) -> Solver:
    """Newton where every client's model is generalised linear, and so solved exactly; else functional SVI."""
    if all(isinstance(problem.predictor, LinearPredictor) for problem in problems):
        return Newton()
    return SVI()


__all__ = ["SVI", "Newton", "NotExactError", "PyroSVI", "Solver", "SolverInfo", "default_solver"]
