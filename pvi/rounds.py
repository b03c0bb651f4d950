"""One round of a run: dispatch, local steps, collection, free energy."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from pvi import client as clients_module
from pvi import server as server_module
from pvi.algorithms import Algorithm
from pvi.client import ClientInfo, ClientState
from pvi.executors import Executor, Task
from pvi.families import GaussianFamily, kl
from pvi.history import Round
from pvi.objectives import LocalProblem, expected_log_likelihood
from pvi.posterior import Posterior
from pvi.problem import Problem
from pvi.schedules import Collect, Dispatch, Schedule
from pvi.server import ServerState
from pvi.solvers import Solver


class RunState(NamedTuple):
    """Everything that changes from round to round; ``sent`` holds the q that clients still work on."""

    server: ServerState
    clients: dict[str, ClientState]
    history: tuple[Round, ...]
    sent: dict[str, Posterior]


class Plan(NamedTuple):
    """Everything that stays the same over a run."""

    problem: Problem
    algorithm: Algorithm
    schedule: Schedule
    solver: Solver
    executor: Executor
    damping: float
    seed: int


def play_round(plan: Plan, state: RunState) -> RunState:
    """One round of the schedule."""
    began = time.perf_counter()
    server, clients = state.server, dict(state.clients)
    names = tuple(clients)
    sent = dict(state.sent)
    infos: dict[str, ClientInfo] = {}
    fraction, moved, messages, size = 1.0, 0.0, 0, 0
    for event in plan.schedule.events(names, len(state.history)):
        match event:
            case Dispatch(dispatched):
                sent |= dict.fromkeys(dispatched, server.posterior)
            case Collect(collected):
                absent = [name for name in collected if name not in sent]
                if absent:
                    raise ValueError(
                        f"schedule {plan.schedule.name!r} collects {absent}, which hold no q: dispatch first"
                    )
                tasks = [Task(clients[name], plan.problem.clients[name], sent.pop(name)) for name in collected]
                answers = plan.executor.run(tasks, plan.algorithm, plan.solver, plan.damping)
                updates = [answer.update for answer in answers if answer.update is not None]
                server, info = server_module.step(server, updates, plan.algorithm.aggregate)
                for name, answer in zip(collected, answers, strict=True):
                    clients[name], infos[name] = answer.state, answer.info
                    if answer.update is not None:
                        clients[name] = clients_module.accept(answer.state, answer.update, info.step_fraction)
                        infos[name] = answer.info._replace(step_fraction=info.step_fraction)
                    messages, size = messages + 2, size + _bytes(answer.update, server)
                fraction, moved = min(fraction, info.step_fraction), max(moved, info.max_delta)
    likelihoods, error, divergence = _free_energy(plan.problem.clients, server)
    record = Round(
        number=len(state.history) + 1,
        elbo=sum(likelihoods.values()) - divergence,
        elbo_standard_error=error,
        expected_log_likelihood=likelihoods,
        kl=divergence,
        communications=messages,
        bytes_sent=size,
        seconds=time.perf_counter() - began,
        max_delta=moved,
        step_fraction=fraction,
        drift=server_module.drift(server, [client.factor for client in clients.values()]),
        clients=infos,
        max_shift=_shift(state.server.posterior, server.posterior),
    )
    return RunState(server, clients, (*state.history, record), sent)


def _free_energy(clients: Mapping[str, LocalProblem], server: ServerState) -> tuple[dict[str, float], float, float]:
    """The clients' E_q[log p(y_m | θ)], the standard error of their sum, and KL(q, p), nats.

    The draws are the same in every round, so that the differences between rounds carry little noise.
    """
    natural: Tensor = server.posterior.natural
    estimates = {
        name: expected_log_likelihood(part, natural, seed=index) for index, (name, part) in enumerate(clients.items())
    }
    error = sum(estimate.standard_error**2 for estimate in estimates.values()) ** 0.5
    divergence = kl(server.prior.family, natural, server.prior.natural).item()
    return {name: estimate.value for name, estimate in estimates.items()}, error, divergence


def _bytes(update: clients_module.Update | None, server: ServerState) -> int:
    """q one way; Δ, its log scale and the free energy's scalar the other way."""
    number = server.posterior.natural.element_size()
    down = server.posterior.natural.numel() * number
    return down + (0 if update is None else (update.delta.natural.numel() + 2) * number)


def _shift(before: Posterior, after: Posterior) -> float:
    """The largest change of a mean in standard deviations; families without a location have none to tell."""
    family = after.family
    if not isinstance(family, GaussianFamily):
        return 0.0
    change = family.location(after.natural) - family.location(before.natural)
    return (change.abs() / family.variance(after.natural).sqrt()).max().item()
