"""Local solvers, one a file."""

from collections.abc import Sequence

from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers.alpha import alpha_solver
from pvi.solvers.newton import Newton, NotExactError
from pvi.solvers.protocol import Solver, SolverInfo
from pvi.solvers.pyro_svi import PyroSVI
from pvi.solvers.row_ep import RowEP
from pvi.solvers.svi import SVI


def default_solver(problems: Sequence[LocalProblem]) -> Solver:
    """Newton where every client's model is generalised linear, and so solved exactly; else functional SVI.

    For an alpha divergence: :func:`alpha_solver`.
    """
    if any(problem.alpha for problem in problems):
        return alpha_solver(problems)
    if all(isinstance(problem.predictor, LinearPredictor) for problem in problems):
        return Newton()
    return SVI()


def prior_solver() -> Solver:
    """The solver of the server's own problem, a prior outside the family."""
    return SVI()


SOLVERS: dict[str, type[Newton] | type[SVI] | type[PyroSVI] | type[RowEP]] = {
    "newton": Newton,
    "svi": SVI,
    "pyro-svi": PyroSVI,
    "row-ep": RowEP,
}


def resolve_solver(solver: Solver | str) -> Solver:
    """A solver by name with its default options, or the object itself; raises ``ValueError`` for an unknown name."""
    if not isinstance(solver, str):
        return solver
    if solver not in SOLVERS:
        raise ValueError(
            f"unknown solver {solver!r}; there are {', '.join(SOLVERS)}, or an object such as SVI(steps=500)"
        )
    return SOLVERS[solver]()


__all__ = [
    "SOLVERS",
    "SVI",
    "Newton",
    "NotExactError",
    "PyroSVI",
    "RowEP",
    "Solver",
    "SolverInfo",
    "alpha_solver",
    "default_solver",
    "prior_solver",
    "resolve_solver",
]
