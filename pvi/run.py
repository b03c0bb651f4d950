"""``fit``: from a Pyro program and the clients' data to the posterior that pooling all rows would have given."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pvi import client as clients_module
from pvi import server as server_module
from pvi.algorithms import Algorithm, resolve_algorithm
from pvi.data.tables import Tables
from pvi.executors import Executor, resolve_executor
from pvi.posterior import Posterior
from pvi.problem import build_problem
from pvi.progress import Report, reporter
from pvi.result import Result
from pvi.rounds import Plan, RunState, play_round
from pvi.schedules import Schedule, resolve_schedule
from pvi.solvers import Solver, default_solver, resolve_solver

logger = logging.getLogger("pvi")


def fit(
    model: Callable[..., Any] | str,
    clients: Sequence[Any] | Mapping[str, Any],
    guide: Any = None,
    algorithm: Algorithm | str = "pvi",
    schedule: Schedule | str = "synchronous",
    damping: float = 0.2,
    rounds: int = 20,
    solver: Solver | str | None = None,
    executor: Executor | str = "loop",
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    progress: bool | Report = False,
    columns: Sequence[str] | None = None,
    threads: int = 1,
) -> Result:
    """Fit a Pyro program to data that stays with its clients.

    Args:
        model: a Pyro program, called with a client's data; or ``"logistic_regression"`` (bundled),
            ``"pkg.mod:attr"``, ``"file.py:attr"``.
        clients: each client's data, a list or a dict by name: a tuple or a dict of tensors, rows first.
        guide: ``None`` for a mean-field Gaussian, ``"full"`` for one with full covariance,
            ``pvi.FullCovariance(("site", "site"), ...)`` for named groups, or a hand-written Pyro guide of
            independent sites whose families and initial values are read from it.
        algorithm: a name or an :class:`~pvi.algorithms.Algorithm` such as ``pvi.PVI()``.
        schedule: ``"synchronous"``, ``"sequential"`` or a :class:`~pvi.schedules.Schedule`.
        damping: ρ in (0, 1]; 1 is undamped.
        rounds: rounds of the schedule (sequential: passes over all clients).
        solver: a local solver or its name ("newton", "svi", "pyro-svi"); ``None``: exact Newton for generalised
            linear models, else functional SVI.
        executor: ``"loop"`` or an :class:`~pvi.executors.Executor`.
        seed: fixes every random draw.
        device, dtype: where and in what precision; ``dtype=None`` is that of the first client's data.
        progress: show a progress bar, or call a function with each round's record and posterior.
        columns: names of the features, for labels in exports; :class:`pvi.data.Tables` as clients bring their own.
        threads: torch's threads during the run, set back afterwards. Small local steps only lose by sharing cores;
            raise it for large networks on the CPU.

    Returns:
        A :class:`~pvi.result.Result`.

    Raises:
        ValueError, TypeError: for bad input, naming the client, the site or the option; before any fitting.
    """
    plan, state = start(
        model, clients, guide, algorithm, schedule, damping, rounds, solver, executor, seed, device, dtype
    )
    if columns is not None:
        check_columns(columns, plan.problem.prior)
    elif isinstance(clients, Tables):
        columns = clients.columns
    with _threads(threads), reporter(progress, rounds) as report:
        for _ in range(rounds):
            state = play_round(plan, state)
            report(state.history[-1], state.server.posterior)
    warn_of_rejections(state)
    return finish(plan, state, columns)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def start(
    model: Callable[..., Any] | str,
    clients: Sequence[Any] | Mapping[str, Any],
    guide: Any,
    algorithm: Algorithm | str,
    schedule: Schedule | str,
    damping: float,
    rounds: int,
    solver: Solver | str | None,
    executor: Executor | str,
    seed: int,
    device: str | torch.device,
    dtype: torch.dtype | None,
) -> tuple[Plan, RunState]:
    """Check everything and set up: q = p, every factor 1. Arguments as in :func:`fit`."""
    if not isinstance(damping, int | float) or not 0 < damping <= 1:
        raise ValueError(f"damping must lie in (0, 1], got {damping!r}; 1 is undamped")
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds must be a whole number, at least 1, got {rounds!r}")
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(device)!r}: torch finds no CUDA device here; use device='cpu'")
    chosen = resolve_algorithm(algorithm), resolve_schedule(schedule)
    runner = resolve_executor(executor)
    local = None if solver is None else resolve_solver(solver)
    problem = build_problem(model, clients, guide, where, dtype)
    if local is None:
        local = default_solver(list(problem.clients.values()))
    plan = Plan(problem, *chosen, local, runner, float(damping), seed)
    states = {
        name: clients_module.init(part, problem.prior.natural, 1_000_003 * (seed * 10_007 + index))
        for index, (name, part) in enumerate(problem.clients.items())
    }
    return plan, RunState(server_module.init(problem.prior), states, (), {})


def check_columns(columns: Sequence[str], prior: Posterior) -> None:
    """Raises ``ValueError`` for names that fit no site or that stand twice."""
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise ValueError(f"columns: {twice} stand twice; features need names of their own")
    lengths = {site.name: site.shape for site in prior.coordinates.sites}
    if not any(len(columns) in shape for shape in lengths.values()):
        raise ValueError(f"columns: {len(columns)} names fit no dimension of the sites' shapes {lengths}")


def warn_of_rejections(state: RunState) -> None:
    """Say on the log what a user who does not read the history would miss."""
    last = state.history[-1]
    if last.rejected:
        said = "; ".join(f"{name}: {reason}" for name, reason in last.rejected.items())
        logger.warning("updates of %d of %d clients were not used in the last round: %s", len(last.rejected),
                       len(last.clients), said)  # fmt: skip
    if not math.isfinite(last.elbo):
        logger.warning("the ELBO is %s: the likelihood is not finite under the posterior; check the data", last.elbo)


def finish(plan: Plan, state: RunState, columns: Sequence[str] | None = None) -> Result:
    """The result of the rounds played so far."""
    return Result(
        posterior=state.server.posterior,
        prior=state.server.prior,
        factors={name: client.factor for name, client in state.clients.items()},
        history=list(state.history),
        model=plan.problem.model,
        model_name=plan.problem.model_name,
        observed=plan.problem.observed,
        columns=tuple(columns) if columns is not None else (),
        settings={
            "algorithm": plan.algorithm.name,
            "schedule": plan.schedule.name,
            "solver": plan.solver.name,
            "executor": plan.executor.name,
            "damping": plan.damping,
            "rounds": len(state.history),
            "seed": plan.seed,
        },
        data={name: part.batch for name, part in plan.problem.clients.items()},
    )
