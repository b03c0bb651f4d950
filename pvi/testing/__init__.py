"""Public law suites for people who add a family or a solver: the same ones that the library's own parts pass."""

from pvi.testing.families import check_family
from pvi.testing.solvers import check_solver

__all__ = ["check_family", "check_solver"]
