"""Solvers that keep something of their client's own from visit to visit: a posterior, an optimiser's memory."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.solvers.protocol import Solver, SolverInfo


class Personal(NamedTuple):
    """What a client keeps for itself: η of its personal posterior ``[num_natural]``, and what its optimisers remember.

    It never leaves the client.
    """

    natural: Tensor
    memory: tuple[Tensor, ...] = ()


class Visit(NamedTuple):
    """What a solve came to: η of the client's answer to the server, what the client keeps, and what there is to say."""

    natural: Tensor
    personal: Personal | None
    info: SolverInfo


@runtime_checkable
class PersonalSolver(Protocol):
    """A local solver that is part of its algorithm. ``sent`` is η of the q that the server sent ``[num_natural]``."""

    @property
    def name(self) -> str:
        """For histories and logs."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Its settings by name, as plain values, for the record of a run."""

    def check(self, problem: LocalProblem) -> None:
        """Raises ``ValueError`` for a problem that the method has no meaning for."""

    def visit(self, problem: LocalProblem, sent: Tensor, personal: Personal | None, seed: int) -> Visit:
        """One client's visit; ``personal`` is ``None`` at its first. Pure, as every solver is."""

    def visit_many(
        self,
        problems: Sequence[LocalProblem],
        sent: Sequence[Tensor],
        personal: Sequence[Personal | None],
        seeds: Sequence[int],
        engine: Engine,
    ) -> list[Visit]:
        """What :meth:`visit` gives for each client, up to rounding, from batched computations.

        Raises :class:`~pvi.stack.NotVectorisable` where these problems cannot be computed together.
        """

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """Roughly what memory a batched visit takes for this client."""

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """Whether batched computations are likely to be faster here."""


LocalSolver = Solver | PersonalSolver
