"""Rounds of clients' visits for :func:`~pvi.testing.executors.check_executor`: all that may go wrong side by side."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvi import client as clients
from pvi import server as servers
from pvi.algorithms import PVI, Algorithm, PowerEP
from pvi.executors import Answer, Task
from pvi.factors import as_factor, power
from pvi.objectives import LocalProblem
from pvi.problem import build_problem
from pvi.server import ServerState
from pvi.solvers import LBFGS, SVI, Conjugate, Newton, Solver
from pvi.testing import executor_models as models

F64 = torch.float64
EXACT = 1e-10
"""Posterior standard deviations between two runs of a deterministic solver: sums in another order."""
FEW = 1e-8
"""The same for a few stochastic steps: Adam magnifies rounding where gradients are small."""
SIZES = (1, 40, 7, 7)
"""Rows of the clients: one alone, one long, two alike, not in order."""


class Fixture(NamedTuple):
    """Clients, and how they are visited; answers may differ by ``allowed`` posterior standard deviations."""

    name: str
    problems: tuple[LocalProblem, ...]
    server: ServerState
    algorithm: Algorithm
    solver: Solver
    damping: float
    allowed: float
    seed: int

    def tasks(self) -> list[Task]:
        """Everybody's first visit."""
        like = self.server.prior.natural
        states = [clients.init(one, like, 1000 * self.seed + k) for k, one in enumerate(self.problems)]
        return self._tasks(states, self.server)

    def next_tasks(self, tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Task]:
        """The visits after these, each on the q that these updates gave."""
        updates = [answer.update for answer in answers if answer.update is not None]
        rows = {problem.client: problem.batch.num_rows for problem in self.problems}
        shares = {name: number / sum(rows.values()) for name, number in rows.items()}
        server, info = servers.step(self.server, updates, self.algorithm.aggregate, shares)
        states = [
            answer.state if answer.update is None else clients.accept(answer.state, answer.update, info.step_fraction)
            for answer in answers
        ]
        return self._tasks(states, server)

    def _tasks(self, states: Sequence[clients.ClientState], server: ServerState) -> list[Task]:
        setting = servers.setting(server, len(states))
        rows = [problem.batch.num_rows for problem in self.problems]
        return [
            Task(state, problem, server.posterior, setting._replace(row_share=number / sum(rows)))
            for state, problem, number in zip(states, self.problems, rows, strict=True)
        ]


class Case(NamedTuple):
    """A fixture before it is built."""

    name: str
    model: Callable[..., Any]
    data: Sequence[Any]
    solver: Solver
    allowed: float
    guide: str | None = None
    algorithm: Algorithm = PVI()
    damping: float = 0.2


def cases() -> dict[str, Case]:
    """Deterministic solvers, then a few steps of SVI."""
    few = SVI(steps=8, num_particles=2, window=3)
    rows = [_features(n, k) for k, n in enumerate(SIZES)]
    binary = [(x, (x.sum(1) + noise > 0).to(F64)) for x, noise in rows]
    real = [(x, x.sum(1) + noise) for x, noise in rows]
    outcomes = [(y,) for _, y in real]
    counts = [(y.abs().round(),) for _, y in real]
    private = [(x[:, : 1 + k % 2], y) for k, (x, y) in enumerate(binary)]
    keyed = [{"y": y, "times": 1 + k % 2, "level": torch.tensor(0.1 * k, dtype=F64)} for k, (_, y) in enumerate(real)]
    listed = (
        Case("logistic regression", models.logistic, binary, Newton(), EXACT),
        Case("logistic regression, full covariance", models.logistic, binary, Newton(), EXACT, "full"),
        Case("linear regression in closed form", models.linear, real, Conjugate(), EXACT, "full", damping=1.0),
        Case("rates of counts in closed form", models.rates, counts, Conjugate(), EXACT, "conjugate"),
        Case("a robust mean by L-BFGS", models.robust, outcomes, LBFGS(num_samples=32), EXACT),
        Case("a robust mean", models.robust, outcomes, few, FEW),
        Case("a robust mean, full covariance", models.robust, outcomes, few, FEW, "full"),
        Case("mini-batches", models.logistic, binary, SVI(epochs=2, window=2, batch_size=5), FEW),
        Case("mini-batches of the model's own", models.subsampled, outcomes, few, FEW),
        Case("an intercept a client", models.mixed, binary, few, FEW),
        Case("an intercept a client, full covariance", models.mixed, binary, few, FEW, "full"),
        Case("an effect a row", models.overdispersed, counts, few, FEW),
        Case("covariates that not all have", models.partly, private, few, FEW),
        Case("numbers and keywords", models.keyed, keyed, few, FEW),
        Case("models that count their rows", models.counting, outcomes, few, FEW),
        Case("an alpha divergence", models.logistic, binary, few, FEW, algorithm=PowerEP(0.5)),
    )
    return {case.name: case for case in listed}


def build(case: Case, seed: int) -> Fixture:
    """The clients' problems, at the prior."""
    built = build_problem(case.model, case.data, case.guide, torch.device("cpu"), F64, alpha=case.algorithm.alpha)
    server, problems = servers.init(built.prior, built.hyperparameters), tuple(built.clients.values())
    return Fixture(case.name, problems, server, case.algorithm, case.solver, case.damping, case.allowed, seed)


class Failing(NamedTuple):
    """Visits of which the one at ``position`` gives no update."""

    fixture: Fixture
    tasks: list[Task]
    position: int


def failing(seed: int) -> tuple[Failing, ...]:
    """A solve that ends in values that are not numbers, and one in an improper q."""
    robust = build(cases()["a robust mean"], seed)._replace(name="a likelihood that is not finite")
    tasks = robust.tasks()
    batch = tasks[2].problem.batch
    infinite = batch._replace(args=(batch.args[0] * torch.inf,))
    tasks[2] = tasks[2]._replace(problem=tasks[2].problem._replace(batch=infinite))
    closed = build(cases()["linear regression in closed form"], seed)._replace(name="a cavity that leaves nothing")
    others = closed.tasks()
    state, posterior = others[0].state, others[0].posterior
    # The only row does not make up for twice the prior taken away.
    taken = power(as_factor(posterior), 3.0)
    others[0] = others[0]._replace(state=state._replace(factor=taken))
    return Failing(robust, tasks, 2), Failing(closed, others, 0)


def stochastic(seed: int) -> Fixture:
    """Solves of three clients that go on until nothing rises, and end at different times."""
    solver = SVI(steps=150, learning_rate=0.2, window=5)
    outcomes = [(_features(n, n)[1],) for n in (3, 8, 20)]
    case = cases()["a robust mean, full covariance"]
    return build(case._replace(name="solves to their ends", data=outcomes, solver=solver), seed)


def _features(rows: int, client: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(client)
    numbers = torch.randn(rows, 4, generator=generator, dtype=F64)
    return numbers[:, :3] + 0.3 * client, numbers[:, 3]
