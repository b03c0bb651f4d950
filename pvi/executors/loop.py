"""The reference executor: one client after the other in this process."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pvi.algorithms import Algorithm
from pvi.cavities import Setting
from pvi.client import ClientInfo, ClientState, Update, step
from pvi.objectives import LocalProblem
from pvi.posterior import Posterior
from pvi.solvers import Solver


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


class Executor(Protocol):
    """Runs the steps of several clients; every executor gives the same answers."""

    @property
    def name(self) -> str:
        """For histories and logs."""

    def run(self, tasks: Sequence[Task], algorithm: Algorithm, solver: Solver, damping: float) -> list[Answer]:
        """The answers in the order of the tasks."""


class Loop(NamedTuple):
    """One client after the other."""

    name: str = "loop"

    def run(self, tasks: Sequence[Task], algorithm: Algorithm, solver: Solver, damping: float) -> list[Answer]:
        """See :class:`Executor`."""
        return [
            Answer(*step(task.state, task.problem, task.posterior, task.setting, algorithm.cavity, solver, damping))
            for task in tasks
        ]
