"""The end of a run, or of its rounds so far: the result, and what is said on the log."""

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any

from pvi.algorithms.protocol import SHARED, Algorithm, Energy
from pvi.cavities import no_deletion
from pvi.history import falling, remote, sunken, unsettled
from pvi.posterior import Posterior
from pvi.result import Result
from pvi.rounds import Plan, RunState

logger = logging.getLogger("pvi")


def warn_at_the_end(plan: Plan, state: RunState) -> None:
    """Say on the log what a user who does not read the history would miss."""
    last = state.history[-1]
    unvisited = [name for name, client in state.clients.items() if not client.visits]
    if unvisited:
        logger.warning("the schedule never collected from %s: their rows are not in the posterior", unvisited)
    moving = unsettled(state.history)
    if moving:
        logger.warning("hyperparameters %s still moved by over 1 %% in the last round: more rounds are needed", moving)
    visits = [info for record in state.history for info in record.visits]
    if visits and all(info.rejected for info in visits):
        logger.warning("no update was used in any round: the result is what the run started with")
    if last.rejected:
        said = "; ".join(f"{name}: {reason}" for name, reason in last.rejected.items())
        logger.warning("updates of %d of %d clients were not used in the last round: %s", len(last.rejected),
                       len(last.clients), said)  # fmt: skip
    own, name = plan.algorithm.solver is not None, elbo_name(plan.algorithm)
    if not math.isfinite(last.elbo):
        advice = "use smaller steps, or check the data" if own else "check the data"
        logger.warning("the %s is %s: the likelihood is not finite under the posterior; %s", name, last.elbo, advice)
    elif own and remote(last, sum(part.batch.num_rows for part in state.problem.clients.values())):
        logger.warning("the %s is %.3g, millions of nats a row: the steps diverged, use smaller ones; or data and "
                       "model have different scales", name, last.elbo)  # fmt: skip


def warn_of_divergence(plan: Plan, state: RunState) -> None:
    """Say once that the run diverges: when three rounds tell, and did not yet before."""
    if not plan.algorithm.factors:  # its rounds need not raise it, but it must not end below where it began
        said = "" if plan.algorithm.energy.personal else sunken(state.history)
        if said and not sunken(state.history[:-1]):
            logger.warning("the %s %s; use smaller steps", elbo_name(plan.algorithm), said)
        return
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
        | own_parts(plan.algorithm)
        | ({"point": True} if plan.algorithm.point else {})
        | ({"acceleration": plan.acceleration.name} if plan.acceleration is not None else {})
        | ({"objective": objective(plan.algorithm.energy)} if plan.algorithm.energy != SHARED else {}),
        data={name: part.batch for name, part in problem.clients.items()},
        hyperparameters=problem.values,
        correction=None if problem.prior_problem is None else state.server.correction,
        local=local_posteriors(state),
        personal=personal_posteriors(state) if has_personal(plan, state) else {},
        by_row=problem.by_row,
    )


def elbo_name(algorithm: Algorithm) -> str:
    """What its rounds' ``elbo`` is called, see :attr:`pvi.Result.elbo_name`."""
    return "ELBO" if algorithm.energy == SHARED else "objective"


def own_parts(algorithm: Algorithm) -> dict[str, dict[str, Any]]:
    """The options of an algorithm's own solver and of its aggregator; empty where the user chooses the solver."""
    if algorithm.solver is None:
        return {}
    rule = algorithm.aggregate
    combined: dict[str, Any] = (
        {"name": type(rule).__name__} | asdict(rule) if is_dataclass(rule) and not isinstance(rule, type) else {}
    )
    return {"options": dict(algorithm.solver.options), "aggregator": combined}


def objective(energy: Energy) -> str:
    """What a run reports in the place of the ELBO, as a formula."""
    weight = f"{energy.weight:g} " if energy.weight != 1 else ""
    own, prior = ("q_m", "KL(q_m, q)") if energy.personal else ("q", "KL(q, p)")
    likelihood = f"E_{own}[log p(y_m | θ)]"
    if not energy.weight:
        return f"Σ_m {likelihood}"
    return f"Σ_m ({likelihood} - {weight}{prior})" if energy.personal else f"Σ_m {likelihood} - {weight}{prior}"


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


def has_personal(plan: Plan, state: RunState) -> bool:
    """Whether clients have posteriors of their own: part of the algorithm, or kept since they were told to."""
    kept = (client.personal for client in state.clients.values())
    return plan.algorithm.energy.personal or any(own is not None and own.natural is not None for own in kept)


def personal_posteriors(state: RunState) -> dict[str, Posterior]:
    """Each client's posterior of its own; only here because one process played them all.

    Of a client that has not learned one yet, since its visits were rejected or never came, it is q.
    """
    shared, found = state.server.posterior, dict[str, Posterior]()
    for name, client in state.clients.items():
        own = None if client.personal is None else client.personal.natural
        found[name] = shared if own is None else replace(shared, natural=own)
    return found
