"""A round as the plan wants it: plain or accelerated, with a given damping or one that is searched for."""

from pvi.accelerated import accelerated_round
from pvi.damping import Auto
from pvi.free_energy import falls
from pvi.rounds import Plan, RunState, energy_of, plain_round
from pvi.schedules import is_synchronous

ROUNDING = 1e-6
"""Of the free energy: solves end a little short of their optima, which is no reason to search."""


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
    before = energy_of(state)
    messages, size, seconds = 0, 0, 0.0
    attempt, rho = 1, state.damping
    while True:
        after = _once(plan, state._replace(damping=rho))
        last = after.history[-1]
        messages, size, seconds = messages + last.communications, size + last.bytes_sent, seconds + last.seconds
        if not falls(before, energy_of(after), ROUNDING) or rho * auto.shrink < auto.smallest:
            break
        attempt, rho = attempt + 1, rho * auto.shrink
    said = last._replace(communications=messages, bytes_sent=size, seconds=seconds, attempts=attempt)
    grown = min(1.0, rho * auto.grow) if attempt == 1 else rho
    return after._replace(history=(*state.history, said), damping=grown)
