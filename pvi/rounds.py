"""One round of a run: dispatch, local steps, collection, hyperparameters, free energy."""

import logging
import time
from dataclasses import replace
from typing import NamedTuple

from pvi import client as clients_module
from pvi import server as server_module
from pvi.acceleration import Anderson, Memory
from pvi.algorithms import Algorithm
from pvi.assembly import Problem, assemble, same_kind
from pvi.cavities import Setting, deletion
from pvi.client import ClientInfo, ClientState, Update
from pvi.damping import Damping
from pvi.executors import Answer, Executor, Task
from pvi.free_energy import FreeEnergy, free_energy
from pvi.history import Round
from pvi.learning import add, ascend, client_slope, prior_slope
from pvi.memory import Resident, Store
from pvi.objectives import LocalProblem
from pvi.posterior import Posterior
from pvi.schedules import Collect, Dispatch, Schedule
from pvi.server import ServerState
from pvi.solvers import LocalSolver, Solver
from pvi.tally import Tally, count, record

logger = logging.getLogger("pvi")


class Sent(NamedTuple):
    """What a client works on: q, the server's version, the problem at the hyperparameters, and what it was told."""

    posterior: Posterior
    version: int
    problem: LocalProblem
    setting: Setting


class RunState(NamedTuple):
    """Everything that changes from round to round.

    ``sent`` holds what clients still work on; ``damping`` the ρ of the next round; ``own`` the server's state for its
    own factor where the prior lies outside the family; ``memory`` what acceleration remembers.
    """

    server: ServerState
    clients: dict[str, ClientState]
    history: tuple[Round, ...]
    sent: dict[str, Sent]
    problem: Problem
    damping: float
    own: ClientState | None = None
    memory: Memory | None = None


class Plan(NamedTuple):
    """Everything that stays the same over a run."""

    algorithm: Algorithm
    schedule: Schedule
    solver: LocalSolver
    prior_solver: Solver
    executor: Executor
    damping: Damping
    acceleration: Anderson | None
    seed: int
    store: Store = Resident()


def plain_round(plan: Plan, state: RunState) -> RunState:
    """One round of the schedule, each collection applied as it comes."""
    clock = state.history[-1].simulated_seconds if state.history else 0.0
    tally = Tally(time.perf_counter(), state.damping, time=clock)
    state, failed = refine_prior(plan, state)
    tally = tally._replace(earlier=() if failed is None else (failed,))
    server, clients, sent = state.server, dict(state.clients), dict(state.sent)
    shares = state.problem.row_shares
    for event in plan.schedule.events(tuple(clients), len(state.history)):
        tally = tally._replace(time=max(tally.time, event.time))
        match event:
            case Dispatch(dispatched):
                sent |= dispatch(state._replace(server=server), dispatched)
            case Collect(collected, asked=asked):
                answers = answer(plan, state._replace(server=server, clients=clients, sent=sent), collected)
                if asked is not None:
                    answers |= {name: answers[name]._replace(update=None) for name in collected if name not in asked}
                updates = [one.update for one in answers.values() if one.update is not None]
                version, visits = server.version, list[tuple[ClientInfo, Update | None]]()
                server, info = server_module.step(server, updates, plan.algorithm.aggregate, shares)
                for name, one in answers.items():
                    clients[name] = one.state
                    told = one.info._replace(staleness=version - sent.pop(name).version)
                    if one.update is not None:
                        if plan.algorithm.factors:
                            moved = clients_module.accept(one.state, one.update, info.step_fraction)
                            clients[name] = stored(plan.store, moved)
                        told = told._replace(step_fraction=info.step_fraction)
                    visits.append((told, one.update))
                silent = 0 if asked is None else len(collected) - len(asked)
                tally = count(tally, visits, server, silent)._replace(
                    fraction=min(tally.fraction, info.step_fraction), moved=max(tally.moved, info.max_delta)
                )
    after = learn(state._replace(server=server, clients=clients, sent=sent))
    energy = free_energy(after.problem, after.server, after.clients, plan.executor.terms, plan.algorithm.energy)
    return after._replace(history=(*state.history, tell(state, after, tally, energy, plan.algorithm.factors)))


def stored(store: Store, state: ClientState) -> ClientState:
    """The state with its tensors where they shall stay."""
    factor = replace(state.factor, natural=store.keep(state.factor.natural))
    own = None if state.conditional is None else store.keep(state.conditional)
    return state._replace(factor=factor, conditional=own)


def dispatch(state: RunState, names: tuple[str, ...]) -> dict[str, Sent]:
    """What the server sends now: q and all that belongs to it."""
    setting = server_module.setting(state.server, len(state.clients))
    shares = state.problem.row_shares
    return {
        name: Sent(
            state.server.posterior,
            state.server.version,
            state.problem.clients[name],
            setting._replace(row_share=shares[name]),
        )
        for name in names
    }


def answer(plan: Plan, state: RunState, collected: tuple[str, ...]) -> dict[str, Answer]:
    """The local steps of these clients, each on what it was sent."""
    absent = [name for name in collected if name not in state.sent]
    if absent:
        raise ValueError(f"schedule {plan.schedule.name!r} collects {absent}, which hold no q: dispatch first")
    tasks = [
        Task(state.clients[name], state.sent[name].problem, state.sent[name].posterior, state.sent[name].setting)
        for name in collected
    ]
    answers = plan.executor.run(tasks, plan.algorithm, plan.solver, state.damping, plan.store)
    return dict(zip(collected, answers, strict=True))


def refine_prior(plan: Plan, state: RunState) -> tuple[RunState, ClientInfo | None]:
    """The server refines its own factor t_0 like a client, undamped, with the clients' factors as they are."""
    found = propose_prior(plan, state, 1.0)
    if found is None:
        return state, None
    if found.update is None:
        return state._replace(own=found.state), found.info
    server, fraction = server_module.correct(state.server, found.update.delta)
    return state._replace(server=server, own=clients_module.accept(found.state, found.update, fraction)), None


def propose_prior(plan: Plan, state: RunState, damping: float) -> Answer | None:
    """The server's refinement of t_0 and what came of it; ``None`` where the prior lies in the family."""
    if state.own is None or state.problem.prior_problem is None:
        return None
    setting = server_module.setting(state.server, len(state.clients))
    found = clients_module.step(
        state.own, state.problem.prior_problem, state.server.posterior, setting, deletion, plan.prior_solver, damping
    )
    return Answer(*found)


def learn(state: RunState) -> RunState:
    """A step of the hyperparameters at the newest q. The prior moves with them: halved while q would be improper."""
    problem, server = state.problem, state.server
    if not problem.setup.hyperparameters.names:
        return state
    natural = server.posterior.natural
    slopes = [client_slope(problem, name, natural, client.conditional) for name, client in state.clients.items()]
    target = ascend(problem.hyperparameters, add([*slopes, prior_slope(problem, natural)]))
    base = server.prior if problem.prior_problem is not None else None
    fraction = 1.0
    while fraction > 1e-3:
        u = problem.hyperparameters + fraction * (target - problem.hyperparameters)
        moved = assemble(problem.setup, u, base)
        new = server_module.exchange_prior(server, moved.prior) if same_kind(problem, moved) else None
        if new is not None:
            return state._replace(problem=moved, server=new._replace(hyperparameters=u))
        fraction = fraction / 2
    wanted = problem.setup.hyperparameters.values(target)
    logger.warning("hyperparameters stay: any step towards %s makes q improper or the model another kind", wanted)
    return state


def energy_of(state: RunState) -> FreeEnergy:
    """F(q) as the last round left it; computed before the first one."""
    if not state.history:
        return free_energy(state.problem, state.server, state.clients)
    last = state.history[-1]
    return FreeEnergy(last.expected_log_likelihood, last.kl, last.elbo_standard_error)


def tell(before: RunState, after: RunState, tally: Tally, energy: FreeEnergy, factors: bool = True) -> Round:
    """The record of the round between two states; without ``factors`` there is nothing that q could drift from."""
    values = after.problem.values
    learned = {name: values[name].tolist() for name in after.problem.setup.hyperparameters.names}
    drift = server_module.drift(after.server, [client.factor for client in after.clients.values()]) if factors else 0.0
    return record(len(before.history) + 1, before.server, after.server, drift, learned, tally, energy)
