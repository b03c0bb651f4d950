"""What a local solver is."""

from typing import NamedTuple, Protocol

from torch import Tensor

from pvi.objectives import LocalProblem


class SolverInfo(NamedTuple):
    """What a person may want to know about a local solve; ``free_energy`` in nats."""

    steps: int
    free_energy: float
    converged: bool
    message: str


class Solver(Protocol):
    """A way to maximise a client's local free energy."""

    @property
    def name(self) -> str:
        """For histories and logs."""

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """q_m's natural parameters, from the cavity's (possibly improper) and a proper start.

        Pure: the same arguments give the same result, nothing outside is changed.
        """
