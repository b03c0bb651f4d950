"""Public law suites for people who add a family, a solver or an executor: those that the library's own parts pass."""

from pvi.testing.executors import check_executor
from pvi.testing.families import check_family
from pvi.testing.solvers import check_solver

__all__ = ["check_executor", "check_family", "check_solver"]
