"""The default: batched where that is likely to be faster, one client after the other elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from pvi.algorithms import Algorithm
from pvi.executors.loop import RESIDENT, Answer, Loop, Task
from pvi.executors.vectorised import Vectorised
from pvi.memory import Store
from pvi.objectives import Estimate, LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers import LocalSolver, ManySolver, PersonalSolver

MANY = 20
"""Clients whose draws' free energies are computed together: fewer take less time than to capture one of all."""


@dataclass(frozen=True)
class Auto:
    """:class:`~pvi.executors.Vectorised` where the solver can and it pays, else :class:`~pvi.executors.Loop`.

    Both give the same answers; every visit's info says which ran.
    """

    vectorised: Vectorised = field(default_factory=Vectorised)

    @property
    def name(self) -> str:
        """``auto``."""
        return "auto"

    def run(
        self, tasks: Sequence[Task], algorithm: Algorithm, solver: LocalSolver, damping: float, store: Store = RESIDENT
    ) -> list[Answer]:
        """See :class:`~pvi.executors.loop.Executor`."""
        together = isinstance(solver, ManySolver | PersonalSolver) and solver.pays_together(
            [task.problem for task in tasks]
        )
        return (self.vectorised if together else Loop()).run(tasks, algorithm, solver, damping, store)

    def terms(
        self, problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]
    ) -> list[Estimate]:
        """See :class:`~pvi.executors.loop.Executor`."""
        exact = len(problems) > 1 and all(isinstance(problem.predictor, LinearPredictor) for problem in problems)
        together = exact or len(problems) >= MANY
        return (self.vectorised if together else Loop()).terms(problems, natural, conditionals)
