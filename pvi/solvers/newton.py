"""Exact local solves of generalised linear models, for one client or for many at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.blocks import gather
from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers.mixing import MEMORY
from pvi.solvers.newton_state import Clients, clients_of, init, leave, narrowed
from pvi.solvers.newton_step import step
from pvi.solvers.protocol import Solved, SolverInfo, check_variational


class NotExactError(ValueError):
    """The exact solver was asked to solve a model that is not generalised linear."""


@dataclass(frozen=True)
class Newton:
    """Exact local solves for generalised linear models and Gaussian families.

    A solve ends when the Newton decrement (in posterior standard
    deviations) and the relative change of every variance are below ``tolerance``, or after ``max_steps``.
    """

    max_steps: int = 100
    tolerance: float = 1e-6

    @property
    def name(self) -> str:
        """``Newton``."""
        return "Newton"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> Solved:
        """See :class:`~pvi.solvers.protocol.Solver`; deterministic, ``seed`` is not used.

        Raises :class:`NotExactError` where the model has no linear predictor.
        """
        return self._solve([problem], [cavity], [start], None)[0]

    def solve_many(
        self,
        problems: Sequence[LocalProblem],
        cavities: Sequence[Tensor],
        starts: Sequence[Tensor],
        seeds: Sequence[int],
        engine: Engine,
    ) -> list[Solved]:
        """See :class:`~pvi.solvers.protocol.ManySolver`: every client takes the steps that it takes alone."""
        families: dict[object, list[int]] = {}
        for index, problem in enumerate(problems):
            families.setdefault(problem.family, []).append(index)
        solved: dict[int, Solved] = {}
        for members in families.values():
            chosen = [problems[index] for index in members]
            given = [cavities[index] for index in members], [starts[index] for index in members]
            solved |= dict(zip(members, self._solve(chosen, *given, engine), strict=True))
        return [solved[index] for index in range(len(problems))]

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """Its design and what is like it, some matrices of all latents, the memory of the steps."""
        size, rows = problem.family.size, problem.batch.num_rows
        numbers = rows * (3 * size + 100) + 8 * size**2 + 4 * MEMORY * problem.family.num_free
        return numbers * problem.batch.dtype.itemsize

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """Whenever there is more than one client."""
        return len(problems) > 1

    def _solve(
        self,
        problems: Sequence[LocalProblem],
        cavities: Sequence[Tensor],
        starts: Sequence[Tensor],
        engine: Engine | None,
    ) -> list[Solved]:
        for problem in problems:
            check_variational(problem, self.name)
            if not isinstance(problem.predictor, LinearPredictor):
                raise NotExactError(
                    f"client {problem.client!r}: Newton needs a generalised linear model, but "
                    f"{problem.predictor.reason}; use pvi.solvers.SVI or pvi.solvers.PyroSVI"
                )
        order, blocks = gather(problems, engine)
        clients = clients_of(problems[0].family, blocks, torch.stack([cavities[index] for index in order]))
        found = self._ascend(clients, torch.stack([starts[index] for index in order]))
        solved = dict(zip(order, found, strict=True))
        return [solved[index] for index in range(len(problems))]

    def _ascend(self, clients: Clients, starts: Tensor) -> list[Solved]:
        """The solves in the order of ``clients``; ``starts [M, num_natural]``."""
        tolerance = max(self.tolerance, torch.finfo(starts.dtype).eps ** 0.6)
        state = init(clients, narrowed(clients, starts))
        solved: dict[int, Solved] = {}
        here, running = list(range(len(starts))), [True] * len(starts)
        for taken in range(1, self.max_steps + 1):
            state, info = step(state, clients, torch.tensor(running, device=starts.device))
            table = zip(here, *torch.stack([state.free_energy, *info]).tolist(), strict=True)
            for lane, (index, free_energy, decrement, spread, length) in enumerate(table):
                if not running[lane]:
                    continue
                converged = decrement <= tolerance and spread <= tolerance
                if not converged and length > 0 and taken < self.max_steps:
                    continue
                message = ""
                if not converged and length == 0:
                    message = f"no further ascent (decrement {decrement:.1e}, spread {spread:.1e})"
                elif not converged:
                    message = f"not converged after {self.max_steps} steps"
                solved[index] = state.natural[lane].clone(), SolverInfo(taken, free_energy, converged, message)
                running[lane] = False
            if not any(running):
                break
            kept, clients, state = leave(clients, state, running)
            here, running = [here[lane] for lane in kept], [running[lane] for lane in kept]
        return [solved[index] for index in range(len(starts))]
