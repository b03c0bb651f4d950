"""Local solvers, one a file."""

from collections.abc import Callable, Sequence

from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers.alpha import alpha_solver
from pvi.solvers.by_family import ByFamily, stochastic_solver
from pvi.solvers.conjugate import Conjugate, NotConjugateError
from pvi.solvers.curvature_penalty import CurvaturePenalty
from pvi.solvers.gradient_ascent import GradientAscent
from pvi.solvers.laplace_steps import LaplaceSteps
from pvi.solvers.lbfgs import LBFGS, NotGaussianError
from pvi.solvers.local_steps import LocalSteps
from pvi.solvers.natural_gradient import NaturalGradient
from pvi.solvers.newton import Newton, NotExactError
from pvi.solvers.personal import Given, LocalSolver, Personal, PersonalSolver, Visit
from pvi.solvers.point_steps import PointSteps
from pvi.solvers.protocol import ManySolver, Solver, SolverInfo
from pvi.solvers.pyro_svi import PyroSVI
from pvi.solvers.row_ep import RowEP
from pvi.solvers.sub_partitions import SubPartitions
from pvi.solvers.svi import SVI
from pvi.solvers.two_level import TwoLevel


def default_solver(problems: Sequence[LocalProblem]) -> Solver:
    """One solver for all clients: the most exact one that covers every one of them.

    Newton for generalised linear models, closed forms for likelihoods in the family, else functional SVI for Gaussian
    families and natural gradients for others. For an alpha divergence: :func:`alpha_solver`.
    """
    if any(problem.alpha for problem in problems):
        return alpha_solver(problems)
    if all(isinstance(problem.predictor, LinearPredictor) for problem in problems):
        return Newton()
    if all(problem.conjugate is not None and problem.conjugate.exact for problem in problems):
        return Conjugate()
    return stochastic_solver(problems[0].approximation.family)


def prior_solver() -> Solver:
    """The solver of the server's own problem, a prior outside the family: one row, so that draws are cheap."""
    return ByFamily()


SOLVERS: dict[str, Callable[[], Solver]] = {
    "newton": Newton,
    "conjugate": Conjugate,
    "natural-gradient": NaturalGradient,
    "lbfgs": LBFGS,
    "svi": SVI,
    "pyro-svi": PyroSVI,
    "gradient": GradientAscent,
    "row-ep": RowEP,
}
"""What a solver can be called by: each with its default options."""


def resolve_solver(solver: Solver | str) -> Solver:
    """A solver by name with its default options, or the object itself.

    Raises ``ValueError`` for an unknown name, and for a solver that is part of an algorithm.
    """
    if isinstance(solver, PersonalSolver):
        raise ValueError(
            f"solver {solver.name!r} is part of an algorithm: leave solver out and name the algorithm, as in "
            "algorithm=pvi.PFedBayes(...)"
        )
    if not isinstance(solver, str):
        return solver
    if solver not in SOLVERS:
        raise ValueError(
            f"unknown solver {solver!r}; there are {', '.join(SOLVERS)}, or an object such as SVI(steps=500)"
        )
    return SOLVERS[solver]()


__all__ = [
    "LBFGS",
    "SOLVERS",
    "SVI",
    "ByFamily",
    "Conjugate",
    "CurvaturePenalty",
    "Given",
    "GradientAscent",
    "LaplaceSteps",
    "LocalSolver",
    "LocalSteps",
    "ManySolver",
    "NaturalGradient",
    "Newton",
    "NotConjugateError",
    "NotExactError",
    "NotGaussianError",
    "Personal",
    "PersonalSolver",
    "PointSteps",
    "PyroSVI",
    "RowEP",
    "Solver",
    "SolverInfo",
    "SubPartitions",
    "TwoLevel",
    "Visit",
    "alpha_solver",
    "default_solver",
    "prior_solver",
    "resolve_solver",
]
