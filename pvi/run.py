"""``fit``: from a Pyro program and the clients' data to the posterior that pooling all rows would have given."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from pvi.acceleration import Anderson
from pvi.algorithms import Algorithm, resolve_algorithm
from pvi.cavities import no_deletion
from pvi.damping import Damping
from pvi.data.tables import Tables
from pvi.executors import Executor
from pvi.history import falling, unsettled
from pvi.play import play_round
from pvi.posterior import Posterior
from pvi.progress import Report, reporter
from pvi.result import Result
from pvi.rounds import Plan, RunState
from pvi.schedules import Schedule
from pvi.solvers import Solver
from pvi.start import check_columns, start

logger = logging.getLogger("pvi")
LEARNING_ROUNDS = 20
"""Rounds at least where hyperparameters are learned and the user names no number."""


def fit(
    model: Callable[..., Any] | str,
    clients: Sequence[Any] | Mapping[str, Any],
    guide: Any = None,
    algorithm: Algorithm | str = "pvi",
    schedule: Schedule | str | None = None,
    damping: Damping | float | str | None = None,
    rounds: int | None = None,
    solver: Solver | str | None = None,
    executor: Executor | str = "auto",
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    progress: bool | Report = False,
    columns: Sequence[str] | None = None,
    threads: int = 1,
    acceleration: Anderson | str | None = None,
    learn: Sequence[str] | str | None = None,
) -> Result:
    """Fit a Pyro program to data that stays with its clients.

    Args:
        model: a Pyro program, called with a client's data; or ``"logistic_regression"`` (bundled),
            ``"pkg.mod:attr"``, ``"file.py:attr"``.
        clients: each client's data, a list or a dict by name: a tuple or a dict of tensors, rows first.
        guide: ``None`` for a mean-field Gaussian, ``"full"`` for one with full covariance,
            ``pvi.FullCovariance(("site", "site"), ...)`` for named groups, ``"conjugate"`` for the families of the
            priors, or a hand-written Pyro guide of independent sites whose families and initial values are read
            from it.
        algorithm: a name (``"pvi"``, ``"global-vi"``, ``"bcm-same"``, ``"bcm-split"``, ``"vcl"``,
            ``"streaming-vb"``, ``"power-ep"``, ``"stochastic-ep"``) or an object with options such as
            ``pvi.PowerEP(alpha=0.5)``.
        schedule: ``"synchronous"``, ``"sequential"``, ... or an object of :mod:`pvi.schedules`; ``None``: the
            algorithm's own.
        damping: ρ in (0, 1], 1 is undamped; ``"auto"`` searches for a stable one; ``pvi.Decay(...)`` shrinks it over
            the rounds; ``None``: the algorithm's own (PVI: 0.2).
        rounds: rounds of the schedule (sequential: passes over all clients); ``None``: the algorithm's own (PVI: 20).
        solver: a local solver or its name ("newton", "svi", ...); ``None``: exact Newton for generalised linear
            models, closed forms for conjugate ones, else functional SVI.
        executor: ``"loop"`` (one client after the other), ``"vectorised"`` (all in one batched computation), ``"auto"``
            (what is likely to be faster; all give the same answers), or an object such as
            ``pvi.executors.Vectorised(max_clients_at_once=100)``.
        seed: fixes every random draw.
        device, dtype: where and in what precision; ``dtype=None`` is that of the first client's data.
        progress: show a progress bar, or call a function with each round's record and posterior.
        columns: names of the features, for labels in exports; :class:`pvi.data.Tables` as clients bring their own.
        threads: torch's threads during the run, set back afterwards. Small local steps only lose by sharing cores;
            raise it for large networks on the CPU.
        acceleration: ``"anderson"`` or ``pvi.Anderson(memory=5)``: mixes the last synchronous rounds.
        learn: the model's ``pyro.param``s to learn by maximising the free energy: their names, or ``"all"``; ``[]``
            keeps them at their initial values.

    Returns:
        A :class:`~pvi.result.Result`.

    Raises:
        ValueError, TypeError: for bad input, naming the client, the site or the option; before any fitting.
    """
    chosen = resolve_algorithm(algorithm)
    number = chosen.rounds if rounds is None else rounds
    if rounds is None and learn and chosen.max_rounds is None:
        number = max(number, LEARNING_ROUNDS)
    plan, state = start(
        model, clients, guide, chosen, schedule, damping, number, solver, executor, seed, device, dtype,
        acceleration=acceleration, learn=learn,
    )  # fmt: skip
    if columns is not None:
        check_columns(columns, state.problem.prior)
    elif isinstance(clients, Tables):
        columns = clients.columns
    with _threads(threads), reporter(progress, number) as report:
        for _ in range(number):
            state = play_round(plan, state)
            warn_of_divergence(plan, state)
            report(state.history[-1], state.server.posterior)
    warn_at_the_end(state)
    return finish(plan, state, columns)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def warn_at_the_end(state: RunState) -> None:
    """Say on the log what a user who does not read the history would miss."""
    last = state.history[-1]
    unvisited = [name for name, client in state.clients.items() if not client.visits]
    if unvisited:
        logger.warning("the schedule never collected from %s: their rows are not in the posterior", unvisited)
    moving = unsettled(state.history)
    if moving:
        logger.warning("hyperparameters %s still moved by over 1 %% in the last round: more rounds are needed", moving)
    if last.rejected:
        said = "; ".join(f"{name}: {reason}" for name, reason in last.rejected.items())
        logger.warning("updates of %d of %d clients were not used in the last round: %s", len(last.rejected),
                       len(last.clients), said)  # fmt: skip
    if not math.isfinite(last.elbo):
        logger.warning("the ELBO is %s: the likelihood is not finite under the posterior; check the data", last.elbo)


def warn_of_divergence(plan: Plan, state: RunState) -> None:
    """Say once that the ELBO keeps falling: when it has done so for three rounds, and was not yet before."""
    said = falling(state.history)
    if said and not falling(state.history[:-1]):
        over = plan.algorithm.cavity is no_deletion
        logger.warning("%s%s", said, "; without deletion rows are over-counted: use algorithm='pvi'" if over else "")


def finish(plan: Plan, state: RunState, columns: Sequence[str] | None = None) -> Result:
    """The result of the rounds played so far."""
    problem = state.problem
    return Result(
        posterior=state.server.posterior,
        prior=state.server.prior,
        factors={name: client.factor for name, client in state.clients.items()},
        history=list(state.history),
        model=problem.model,
        model_name=problem.model_name,
        observed=problem.observed,
        columns=tuple(columns) if columns is not None else (),
        settings={
            "algorithm": plan.algorithm.name,
            "schedule": plan.schedule.name,
            "solver": plan.solver.name,
            "executor": " and ".join(executors_of(state)) or plan.executor.name,
            "damping": state.history[-1].damping if state.history else state.damping,
            "rounds": len(state.history),
            "seed": plan.seed,
        }
        | ({"alpha": plan.algorithm.alpha} if plan.algorithm.alpha else {})
        | ({"acceleration": plan.acceleration.name} if plan.acceleration is not None else {}),
        data={name: part.batch for name, part in problem.clients.items()},
        hyperparameters=problem.values,
        correction=None if problem.prior_problem is None else state.server.correction,
        local=local_posteriors(state),
        by_row=problem.by_row,
    )


def executors_of(state: RunState) -> list[str]:
    """What ran the local steps."""
    return sorted({info.executor for record in state.history for info in record.visits})


def local_posteriors(state: RunState) -> dict[str, Posterior]:
    """q(θ, z_m) of each client with latents z_m of its own; only here because one process played them all."""
    found = {}
    for name, client in state.clients.items():
        problem = state.problem.clients[name]
        if client.conditional is not None:
            natural = problem.local(state.server.posterior.natural, client.conditional)
            found[name] = Posterior(problem.extension.local, natural, problem.approximation.coordinates)
    return found
