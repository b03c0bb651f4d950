"""Solvers that keep something of their client's own from visit to visit: a posterior, an optimiser's memory."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pvi.cavities import Setting
from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.solvers.protocol import Solver, SolverInfo


class Personal(NamedTuple):
    """What a client keeps for itself: η of its personal posterior ``[num_natural]``, and what its method remembers.

    ``natural`` is ``None`` where the method makes no posterior of the client's own. It never leaves the client.
    """

    natural: Tensor | None
    memory: tuple[Tensor, ...] = ()


class Given(NamedTuple):
    """What a visit starts from: η of the q that the server sent ``[num_natural]``, what it said of the whole, and the
    client's own: what it kept (``None`` at its first visit) and the seed of the visit.
    """

    natural: Tensor
    setting: Setting
    personal: Personal | None
    seed: int


class Visit(NamedTuple):
    """What a solve came to: η of the client's answer to the server, what the client keeps, and what there is to say.

    ``beside`` is what the client adds to :attr:`~pvi.cavities.Setting.beside`.
    """

    natural: Tensor
    personal: Personal | None
    info: SolverInfo
    beside: Tensor | None = None


@runtime_checkable
class PersonalSolver(Protocol):
    """A local solver that is part of its algorithm."""

    @property
    def name(self) -> str:
        """For histories and logs."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Its settings by name, as plain values, for the record of a run."""

    def check(self, problem: LocalProblem) -> None:
        """Raises ``ValueError`` for a problem that the method has no meaning for."""

    def visit(self, problem: LocalProblem, given: Given) -> Visit:
        """One client's visit. Pure, as every solver is."""

    def visit_many(self, problems: Sequence[LocalProblem], given: Sequence[Given], engine: Engine) -> list[Visit]:
        """What :meth:`visit` gives for each client, up to rounding, from batched computations.

        Raises :class:`~pvi.stack.NotVectorisable` where these problems cannot be computed together.
        """

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """Roughly what memory a batched visit takes for this client."""

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """Whether batched computations are likely to be faster here."""


LocalSolver = Solver | PersonalSolver
