"""What a local solver is."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pvi.engine import Engine
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


Solved = tuple[Tensor, SolverInfo]
"""q_m's natural parameters, and what there is to say."""


@runtime_checkable
class ManySolver(Solver, Protocol):
    """A solver that can work for many clients at once."""

    def solve_many(
        self,
        problems: Sequence[LocalProblem],
        cavities: Sequence[Tensor],
        starts: Sequence[Tensor],
        seeds: Sequence[int],
        engine: Engine,
    ) -> list[Solved]:
        """What :meth:`Solver.solve` gives for each client, up to rounding, from batched computations.

        Raises :class:`~pvi.stack.NotVectorisable` where these problems cannot be computed together.
        """

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """Roughly what memory a batched solve takes for this client."""

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """Whether batched computations are likely to be faster here, what must be prepared for them included."""


def check_variational(problem: LocalProblem, solver: str) -> None:
    """Raises ``ValueError`` where the problem's divergence is another than the variational one, alpha = 0."""
    if problem.alpha != 0:
        raise ValueError(
            f"client {problem.client!r}: {solver} maximises the variational free energy, not that of the alpha "
            f"divergence (alpha = {problem.alpha:g}) that the algorithm asks for; leave the solver out, or use "
            "pvi.solvers.RowEP or SVI"
        )
