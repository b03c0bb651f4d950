"""A synchronous round with Anderson acceleration; see :mod:`pvi.acceleration` for the method.

Safeguards: the mixture is moved towards the plain damped step until q is proper; where it lowers the free energy the
damped step is taken instead, and the memory starts anew.
"""

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from pvi import client as clients_module
from pvi import server as server_module
from pvi.acceleration import Anderson, Memory, Visit, coefficients, inner_products, mixed, mixed_conditional
from pvi.assembly import PRIOR
from pvi.client import ClientState
from pvi.executors import Answer
from pvi.factors import as_factor, multiply, unit
from pvi.free_energy import falls, free_energy
from pvi.posterior import Posterior
from pvi.rounds import Plan, RunState, answer, dispatch, energy_of, propose_prior, stored, tell
from pvi.tally import Tally, count

MAX_HALVINGS = 10
ROUNDING = 1e-9
"""Of the free energy: what a fall must exceed."""


def accelerated_round(plan: Plan, state: RunState, anderson: Anderson) -> RunState:
    """One synchronous round; the server's own factor takes part like a client's."""
    began = time.perf_counter()
    names = tuple(state.clients)
    answers = answer(plan, state._replace(sent=dispatch(state, names)), names)
    own = propose_prior(plan, state, state.damping)
    everyone = [*answers.values(), *([own] if own is not None else [])]
    rejected = any(one.update is None for one in everyone)
    memory = _remember(state, answers, own, anderson.memory + 1)
    after, fraction = _damped(plan, state, answers, own)
    mixing: tuple[float, ...] = ()
    alpha = None if rejected else _weights(state, memory)
    if alpha is not None:
        faster = _apply(plan, state, answers, own, memory, alpha)
        energy = free_energy(faster.problem, faster.server, faster.clients, plan.executor.terms)
        if not falls(energy_of(state), energy, ROUNDING):
            after, fraction, mixing = faster, 1.0, tuple(alpha.tolist())
    if not mixing:
        energy = free_energy(after.problem, after.server, after.clients, plan.executor.terms)
    moved = (after.server.posterior.natural - state.server.posterior.natural).abs().max().item()
    times = [event.time for event in plan.schedule.events(names, len(state.history))]
    tally = Tally(began, state.damping, fraction=fraction, moved=moved, time=max(times))
    told = [
        (one.info if one.update is None else one.info._replace(step_fraction=fraction), one.update)
        for one in answers.values()
    ]
    said = tell(state, after, count(tally, told, after.server), energy)._replace(mixing=mixing)
    kept = memory if mixing else None if rejected else memory.last()
    return after._replace(history=(*state.history, said), memory=kept)


def _remember(state: RunState, answers: Mapping[str, Answer], own: Answer | None, length: int) -> Memory:
    """Everybody's visits with this round's at the end."""
    nothing = unit(state.server.prior.family, state.server.prior.natural)
    past = state.memory if state.memory is not None else Memory({}, (), ())

    def added(visits: tuple[Visit, ...], before: ClientState, one: Answer) -> tuple[Visit, ...]:
        delta = nothing if one.update is None else one.update.delta
        return (*visits, Visit(before.factor, delta, one.state.conditional, state.damping))[-length:]

    clients = {name: added(past.clients.get(name, ()), state.clients[name], one) for name, one in answers.items()}
    correction = () if own is None or state.own is None else added(past.own, state.own, own)
    total = nothing
    for visits in (*clients.values(), *([correction] if correction else [])):
        total = multiply(total, visits[-1].delta)
    return Memory(
        clients,
        correction,
        (*past.server, Visit(as_factor(state.server.posterior), total, None, state.damping))[-length:],
    )


def _damped(plan: Plan, state: RunState, answers: Mapping[str, Answer], own: Answer | None) -> tuple[RunState, float]:
    """The plain step, and the fraction of it that keeps q proper."""
    updates = [one.update for one in (*answers.values(), *([own] if own is not None else [])) if one.update is not None]
    server, info = server_module.step(
        state.server, updates, plan.algorithm.aggregate, state.problem.row_shares | {PRIOR: 0.0}
    )
    clients = {name: stored(plan.store, _accept(one, info.step_fraction)) for name, one in answers.items()}
    after = state._replace(server=server, clients=clients)
    if own is not None:
        moved = _accept(own, info.step_fraction)
        after = after._replace(own=moved, server=server._replace(correction=moved.factor))
    return after, info.step_fraction


def _accept(one: Answer, fraction: float) -> ClientState:
    return one.state if one.update is None else clients_module.accept(one.state, one.update, fraction)


def _weights(state: RunState, memory: Memory) -> Tensor | None:
    """The mixture of the rounds remembered; ``None`` where there is only one, or none that keeps q proper."""
    if len(memory.server) < 2:
        return None
    family, natural = state.server.posterior.family, state.server.posterior.natural
    parts = [*memory.clients.values(), *([memory.own] if memory.own else [])]
    products = torch.stack([inner_products(visits, family, natural) for visits in parts]).sum(0)
    best = coefficients(products)
    last = torch.zeros_like(best)
    last[-1] = 1.0
    for halvings in range(MAX_HALVINGS):
        alpha = torch.lerp(last, best, 0.5**halvings)
        if bool(family.is_proper(mixed(memory.server, alpha).natural)):
            return alpha
    return None


def _apply(
    plan: Plan, state: RunState, answers: Mapping[str, Answer], own: Answer | None, memory: Memory, alpha: Tensor
) -> RunState:
    """Every client mixes its own past; the server mixes its sums."""
    old = state.server
    natural = mixed(memory.server, alpha).natural
    posterior = Posterior(old.posterior.family, natural, old.posterior.coordinates)
    clients = {}
    for name, one in answers.items():
        visits, problem = memory.clients[name], state.problem.clients[name]
        conditional = mixed_conditional(visits, alpha)
        if conditional is not None:
            # A mixture of conditionals integrates to a function of θ: what is one of the joint is a conditional again.
            whole = problem.local(natural, conditional)
            proper = bool(problem.family.is_proper(whole))
            conditional = problem.extension.conditional(whole) if proper else one.state.conditional
        clients[name] = stored(plan.store, one.state._replace(factor=mixed(visits, alpha), conditional=conditional))
    version = old.version + any(one.update is not None for one in answers.values())
    server = old._replace(posterior=posterior, version=version)
    if own is None:
        return state._replace(server=server, clients=clients)
    corrected = own.state._replace(factor=mixed(memory.own, alpha))
    return state._replace(server=server._replace(correction=corrected.factor), clients=clients, own=corrected)
