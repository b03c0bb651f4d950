"""The reference executor: one client after the other in this process."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from pvi.algorithms import Algorithm
from pvi.cavities import Setting
from pvi.client import ClientInfo, ClientState, Update, step
from pvi.memory import Resident, Store
from pvi.objectives import Estimate, LocalProblem
from pvi.posterior import Posterior
from pvi.solvers import LocalSolver, Personal
from pvi.terms import terms


class Task(NamedTuple):
    """One client's step: its state, its problem, the q it was sent, and what it was told of the whole."""

    state: ClientState
    problem: LocalProblem
    posterior: Posterior
    setting: Setting


class Answer(NamedTuple):
    """The client's state, its update (``None`` where it was rejected), and what happened."""

    state: ClientState
    update: Update | None
    info: ClientInfo


RESIDENT = Resident()


def kept(store: Store, answer: Answer) -> Answer:
    """The answer with its tensors where they shall stay."""
    update, own = answer.update, answer.state.conditional
    if update is not None:
        update = update._replace(delta=replace(update.delta, natural=store.keep(update.delta.natural)))
    state = answer.state if own is None else answer.state._replace(conditional=store.keep(own))
    if state.personal is not None and update is not None:
        memory = tuple(store.keep(value) for value in state.personal.memory)
        natural = state.personal.natural
        state = state._replace(personal=Personal(None if natural is None else store.keep(natural), memory))
    return answer._replace(state=state, update=update)


@runtime_checkable
class Executor(Protocol):
    """Runs the steps of several clients; every executor gives the same answers."""

    @property
    def name(self) -> str:
        """For histories and logs."""

    def run(
        self, tasks: Sequence[Task], algorithm: Algorithm, solver: LocalSolver, damping: float, store: Store = RESIDENT
    ) -> list[Answer]:
        """The answers in the order of the tasks; what is large in them lies where ``store`` keeps it."""

    def terms(
        self, problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]
    ) -> list[Estimate]:
        """Each client's part of the global free energy, see :data:`pvi.terms.Terms`."""


class Loop(NamedTuple):
    """One client after the other."""

    name: str = "loop"

    def run(
        self, tasks: Sequence[Task], algorithm: Algorithm, solver: LocalSolver, damping: float, store: Store = RESIDENT
    ) -> list[Answer]:
        """See :class:`Executor`."""
        found: list[Answer] = []
        for task in tasks:
            answer = step(task.state, task.problem, task.posterior, task.setting, algorithm.cavity, solver, damping)
            found.append(kept(store, Answer(*answer)))
        return found

    def terms(
        self, problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]
    ) -> list[Estimate]:
        """See :class:`Executor`."""
        return terms(problems, natural, conditionals)
