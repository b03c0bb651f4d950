"""Local solvers, one a file."""

from pvi.solvers.newton import Newton, NotExactError
from pvi.solvers.protocol import Solver, SolverInfo
from pvi.solvers.pyro_svi import PyroSVI
from pvi.solvers.svi import SVI

__all__ = ["SVI", "Newton", "NotExactError", "PyroSVI", "Solver", "SolverInfo"]
