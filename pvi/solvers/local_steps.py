"""A solver of gradient steps: what a method does in a visit, made a solver for one client and for many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.programs.weighted import tensors_of
from pvi.solvers.checks import check_shared
from pvi.solvers.lanes import rows_a_step
from pvi.solvers.personal import Given, Visit
from pvi.solvers.rule import Rule
from pvi.solvers.visits import layers_of, visit, visit_many

TEMPORARIES = 20
"""Copies of η, two numbers a latent of a mean field and a matrix of a full Gaussian, that a step holds at once."""


@dataclass(frozen=True)
class LocalSteps:
    """The steps of a rule as a :class:`~pvi.solvers.personal.PersonalSolver`."""

    rule: Rule

    @property
    def name(self) -> str:
        """The rule's."""
        return self.rule.name

    def check(self, problem: LocalProblem) -> None:
        """See :class:`~pvi.solvers.personal.PersonalSolver`."""
        self.rule.check(problem)
        check_shared(problem, self.rule.name, "is made for latents that all clients share")
        layers_of(self.rule, problem, torch.zeros((), dtype=problem.batch.dtype, device=problem.batch.device))

    @property
    def options(self) -> dict[str, Any]:
        """The rule's fields by name."""
        return dict(vars(self.rule))

    def visit(self, problem: LocalProblem, given: Given) -> Visit:
        """See :class:`~pvi.solvers.personal.PersonalSolver`."""
        return visit(self.rule, problem, given)

    def visit_many(self, problems: Sequence[LocalProblem], given: Sequence[Given], engine: Engine) -> list[Visit]:
        """See :class:`~pvi.solvers.personal.PersonalSolver`."""
        return visit_many(self.rule, problems, given, engine)

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """See :class:`~pvi.solvers.personal.PersonalSolver`."""
        data = sum(value.numel() for value in tensors_of(problem.batch))
        size, draws = rows_a_step(self.rule.batch_size, problem), self.rule.num_particles
        seen = data if size is None else data * size // problem.batch.num_rows
        numbers = (TEMPORARIES + 2 * draws) * problem.family.num_natural + 4 * max(1, draws) * seen
        return (numbers + data) * problem.batch.dtype.itemsize

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """Always: a graph serves all rounds, of which there are many."""
        return True
