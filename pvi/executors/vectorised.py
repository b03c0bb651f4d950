"""All clients of a round in one batched computation, captured once as a graph and compiled where that pays."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pvi.algorithms import Algorithm
from pvi.capture import Compile
from pvi.client import Prepared, conclude, given, prepare
from pvi.engine import Engine
from pvi.executors.loop import RESIDENT, Answer, Loop, Task, kept
from pvi.memory import Store, batch_bytes
from pvi.objectives import Estimate, LocalProblem
from pvi.solvers import LocalSolver, ManySolver, PersonalSolver, Visit
from pvi.stack import NotVectorisable, first_line, kind
from pvi.terms import many_terms, terms

logger = logging.getLogger("pvi")


@dataclass(frozen=True)
class Vectorised:
    """The local steps of all collected clients as one computation, under ``torch.func.vmap``; no change to the model.

    A step is captured once as a graph. ``compile=True`` compiles it at once, ``"auto"`` where a compiler is there and
    the captured graph has run for as long as compiling takes, ``False`` never. Clients of unequal size are computed in
    buckets, the shorter ones padded. What cannot be computed so (the log says why) runs in the loop.
    ``max_clients_at_once`` bounds the memory; ``None``: as many as a quarter of the free memory has room for.

    The object keeps stacked data and graphs for the next round; they hold on to the clients' data as long as it lives.
    """

    compile: Compile = "auto"
    max_clients_at_once: int | None = None
    engine: Engine = field(init=False, repr=False, compare=False)
    said: set[str] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        if self.compile not in (True, False, "auto"):
            raise ValueError(f"Vectorised: compile is True, False or 'auto', got {self.compile!r}")
        if self.max_clients_at_once is not None and self.max_clients_at_once < 1:
            raise ValueError(f"Vectorised: max_clients_at_once must be at least 1, got {self.max_clients_at_once}")
        object.__setattr__(self, "engine", Engine(self.compile))

    @property
    def name(self) -> str:
        """``vectorised``."""
        return "vectorised"

    def run(
        self, tasks: Sequence[Task], algorithm: Algorithm, solver: LocalSolver, damping: float, store: Store = RESIDENT
    ) -> list[Answer]:
        """See :class:`~pvi.executors.loop.Executor`."""
        if not isinstance(solver, ManySolver | PersonalSolver):
            self._say(f"the local solver {solver.name} works on one client at a time")
            return Loop().run(tasks, algorithm, solver, damping, store)
        groups: dict[object, list[int]] = {}
        for index, task in enumerate(tasks):
            groups.setdefault(kind(task.problem), []).append(index)
        found: dict[int, Answer] = {}
        for members in groups.values():
            needed = {index: solver.bytes_a_client(tasks[index].problem) for index in members}
            budget = batch_bytes(tasks[0].posterior.natural.device)
            for chunk in chunks(needed, self.max_clients_at_once, budget):
                chosen = [tasks[index] for index in chunk]
                found |= dict(zip(chunk, self._answer(chosen, algorithm, solver, damping, store), strict=True))
        return [found[index] for index in range(len(tasks))]

    def terms(
        self, problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]
    ) -> list[Estimate]:
        """See :class:`~pvi.executors.loop.Executor`."""
        try:
            return many_terms(self.engine, problems, natural, conditionals)
        except NotVectorisable as error:
            self._say(str(error))
            return terms(problems, natural, conditionals)

    def _answer(
        self,
        tasks: Sequence[Task],
        algorithm: Algorithm,
        solver: ManySolver | PersonalSolver,
        damping: float,
        store: Store,
    ) -> list[Answer]:
        began = time.perf_counter()
        ready = [prepare(task.state, task.problem, task.posterior, task.setting, algorithm.cavity) for task in tasks]
        try:
            solved = self._solve(tasks, ready, solver)
        except NotVectorisable as error:
            self._say(str(error))
            return Loop().run(tasks, algorithm, solver, damping, store)
        except torch.linalg.LinAlgError:
            # One client's solve broke down; the loop finds out whose, and keeps the others.
            return Loop().run(tasks, algorithm, solver, damping, store)
        except Exception as error:
            # The loop says at which client and visit, or does without what failed.
            self._say(first_line(error))
            return Loop().run(tasks, algorithm, solver, damping, store)
        seconds = (time.perf_counter() - began) / len(tasks)
        found = [
            Answer(*conclude(task.state, task.problem, one, visit, damping, seconds))
            for task, one, visit in zip(tasks, ready, solved, strict=True)
        ]
        return [kept(store, answer._replace(info=answer.info._replace(executor=self.name))) for answer in found]

    def _solve(
        self, tasks: Sequence[Task], ready: Sequence[Prepared], solver: ManySolver | PersonalSolver
    ) -> list[Visit]:
        problems, seeds = [task.problem for task in tasks], [one.seed for one in ready]
        if isinstance(solver, PersonalSolver):
            starting = [given(task.state, one) for task, one in zip(tasks, ready, strict=True)]
            return solver.visit_many(problems, starting, self.engine)
        targets, starts = [one.target for one in ready], [one.start for one in ready]
        solved = solver.solve_many(problems, targets, starts, seeds, self.engine)
        return [Visit(natural, None, info) for natural, info in solved]

    def _say(self, reason: str) -> None:
        if reason not in self.said:
            self.said.add(reason)
            logger.info("local steps run one client after the other: %s", reason)


def chunks(needed: Mapping[int, int], most: int | None, budget: int) -> list[list[int]]:
    """Clients by what memory they need, in chunks of at most ``most`` that need at most ``budget`` bytes together.

    Clients of similar size end up together; chunks are as equal as that allows, so that few graphs serve them. A client
    that is too large for the budget comes alone.
    """
    ordered = sorted(needed, key=needed.__getitem__)
    number = max(-(-sum(needed.values()) // budget), -(-len(ordered) // (most or len(ordered))))
    target = min(budget, sum(needed.values()) / number + max(needed.values()))
    found: list[list[int]] = []
    total = 0
    for index in ordered:
        total += needed[index]
        if not found or len(found[-1]) == most or total > target:
            found.append([])
            total = needed[index]
        found[-1].append(index)
    return found
