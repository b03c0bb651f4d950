"""A round as the plan wants it: plain or accelerated, with a given damping or one that is searched for."""

import math

from pvi.accelerated import accelerated_round
from pvi.damping import Auto
from pvi.free_energy import FreeEnergy, free_energy
from pvi.rounds import Plan, RunState, plain_round
from pvi.schedules import is_synchronous


def play_round(plan: Plan, state: RunState) -> RunState:
    """The next round."""
    if isinstance(plan.damping, Auto):
        return _searched(plan, state, plan.damping)
    return _once(plan, state._replace(damping=plan.damping.at(len(state.history))))


def _once(plan: Plan, state: RunState) -> RunState:
    if plan.acceleration is None:
        return plain_round(plan, state)
    if is_synchronous(plan.schedule, tuple(state.clients), len(state.history)):
        return accelerated_round(plan, state, plan.acceleration)
    return plain_round(plan, state)._replace(memory=None)  # somebody is away


def _searched(plan: Plan, state: RunState, auto: Auto) -> RunState:
    """Rounds that lower the free energy are taken back: the state before is whole, and is played from again."""
    before = _energy(state)
    messages, size, seconds = 0, 0, 0.0
    attempt, rho = 1, state.damping
    while True:
        after = _once(plan, state._replace(damping=rho))
        last = after.history[-1]
        messages, size, seconds = messages + last.communications, size + last.bytes_sent, seconds + last.seconds
        if _no_lower(before, last.elbo, last.elbo_standard_error) or rho * auto.shrink < auto.smallest:
            break
        attempt, rho = attempt + 1, rho * auto.shrink
    said = last._replace(communications=messages, bytes_sent=size, seconds=seconds, attempts=attempt)
    grown = min(1.0, rho * auto.grow) if attempt == 1 else rho
    return after._replace(history=(*state.history, said), damping=grown)


def _energy(state: RunState) -> FreeEnergy:
    if state.history:
        last = state.history[-1]
        return FreeEnergy(last.expected_log_likelihood, last.kl, last.elbo_standard_error)
    return free_energy(state.problem, state.server, state.clients)


def _no_lower(before: FreeEnergy, elbo: float, standard_error: float) -> bool:
    if not math.isfinite(before.value):
        return True
    noise = 3 * max(standard_error, before.standard_error) + 1e-6 * abs(before.value)
    return elbo >= before.value - noise
