"""Check everything that a run is given, and set it up: q = p, every factor 1."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pvi import client as clients_module
from pvi import server as server_module
from pvi.acceleration import Anderson, resolve_acceleration
from pvi.algorithms import Algorithm, resolve_algorithm
from pvi.assembly import Problem
from pvi.damping import Constant, Damping, resolve_damping
from pvi.executors import Executor, resolve_executor
from pvi.memory import store_for
from pvi.objectives import NUM_SAMPLES
from pvi.posterior import Posterior
from pvi.problem import build_problem
from pvi.programs.gaussian_sites import why_not_gaussian
from pvi.rounds import Plan, RunState
from pvi.schedules import Dropouts, Schedule, is_synchronous, resolve_schedule, rounds_limit
from pvi.solvers import LocalSolver, PersonalSolver, Solver, default_solver, prior_solver, resolve_solver


def start(
    model: Callable[..., Any] | str,
    clients: Sequence[Any] | Mapping[str, Any],
    guide: Any,
    algorithm: Algorithm | str,
    schedule: Schedule | str | None,
    damping: Damping | float | str | None,
    rounds: int,
    solver: Solver | str | None,
    executor: Executor | str,
    seed: int,
    device: str | torch.device,
    dtype: torch.dtype | None,
    *,
    acceleration: Anderson | str | None = None,
    learn: Sequence[str] | str | None = None,
    elbo_samples: int = NUM_SAMPLES,
) -> tuple[Plan, RunState]:
    """Check everything and set up: q = p, every factor 1. Arguments as in :func:`fit`."""
    chosen = resolve_algorithm(algorithm)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds must be a whole number, at least 1, got {rounds!r}")
    if isinstance(elbo_samples, bool) or not isinstance(elbo_samples, int) or elbo_samples < 2:
        raise ValueError(f"elbo_samples must be a whole number, at least 2 (for its error), got {elbo_samples!r}")
    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(device)!r}: torch finds no CUDA device here; use device='cpu'")
    order, rule = resolve_parts(chosen, schedule, damping, rounds)
    faster = resolve_acceleration(acceleration)
    runner = resolve_executor(executor)
    local: LocalSolver | None = None if solver is None else resolve_solver(solver)
    if chosen.solver is not None:
        if local is not None:
            raise ValueError(
                f"algorithm {chosen.name!r} is defined by its local solver ({chosen.solver.name}), got {solver!r}; "
                "leave solver out: its settings are options of the algorithm"
            )
        local = chosen.solver
    problem = build_problem(
        model, clients, chosen.guide if guide is None else guide, where, dtype, learn=learn, alpha=chosen.alpha,
        pooled=chosen.pooled, elbo_samples=elbo_samples,
    )  # fmt: skip
    if faster is not None:
        check_acceleration(chosen, order, tuple(problem.clients), problem)
    if problem.setup.hyperparameters.names and chosen.max_rounds == 1:
        raise ValueError(
            f"algorithm {chosen.name!r} makes one round, but hyperparameters are learned over many: learn them with "
            "algorithm='pvi', then keep them with learn=[]"
        )
    if chosen.solver is not None:
        check_own_solver(chosen, chosen.solver, problem)
    if local is None:
        local = default_solver(list(problem.clients.values()))
    like = problem.prior.natural
    store = store_for(_state_bytes(problem, faster, chosen), like.device)
    plan = Plan(chosen, order, local, prior_solver(), runner, rule, faster, seed, store)
    states = {
        name: clients_module.init(part, like, _stream(seed, index))
        for index, (name, part) in enumerate(problem.clients.items())
    }
    own = None
    if problem.prior_problem is not None and chosen.factors:
        own = clients_module.init(problem.prior_problem, like, _stream(seed, len(states)))
    server = server_module.init(problem.prior, problem.hyperparameters)
    server = server._replace(posterior=chosen.start(problem.prior, _guide(problem)))
    return plan, RunState(server, states, (), {}, problem, rule.at(0), own)


def resolve_parts(
    algorithm: Algorithm, schedule: Schedule | str | None, damping: Damping | float | str | None, rounds: int
) -> tuple[Schedule, Damping]:
    """The schedule and the damping rule, the algorithm's own where none is named.

    Raises ``ValueError`` where they are part of the algorithm and another one is named, and for too many rounds.
    """
    order = algorithm.schedule if schedule is None else resolve_schedule(schedule)
    rule = resolve_damping(algorithm.damping if damping is None else damping)
    if algorithm.fixed and _present(order) != algorithm.schedule:
        raise ValueError(_fixed(algorithm, "schedule", algorithm.schedule.name, schedule))
    if algorithm.fixed and rule != Constant(algorithm.damping):
        raise ValueError(_fixed(algorithm, "damping", algorithm.damping, damping))
    limits = [limit for limit in (algorithm.max_rounds, rounds_limit(order)) if limit is not None]
    if limits and rounds > min(limits):
        raise ValueError(
            f"rounds={rounds}: algorithm {algorithm.name!r} with schedule {order.name!r} makes at most {min(limits)}"
        )
    return order, rule


def _present(schedule: Schedule) -> Schedule:
    """The schedule of clients that are there: absences change no algorithm."""
    return _present(schedule.schedule) if isinstance(schedule, Dropouts) else schedule


def _fixed(algorithm: Algorithm, label: str, own: object, given: object) -> str:
    return (
        f"algorithm {algorithm.name!r} is defined by its {label} ({own}), got {given!r}; leave {label} out, or use "
        "algorithm='pvi'"
    )


def check_own_solver(algorithm: Algorithm, solver: PersonalSolver, problem: Problem) -> None:
    """Raises ``ValueError`` where the algorithm's own solver has no meaning for the problem."""
    if problem.setup.hyperparameters.names:
        raise ValueError(
            f"algorithm {algorithm.name!r} learns no hyperparameters, but the model has "
            f"{list(problem.setup.hyperparameters.names)}: learn them with algorithm='pvi', then keep them with "
            "learn=[]"
        )
    if algorithm.gaussian_prior and problem.prior_problem is not None:
        own = problem.prior_problem
        why = why_not_gaussian(own.program, problem.prior.family, own.batch, problem.prior.natural)
        raise ValueError(
            f"algorithm {algorithm.name!r} takes the prior as a Gaussian in unconstrained space, but {why}"
        )
    for part in problem.clients.values():
        solver.check(part)


def _guide(problem: Problem) -> Posterior | None:
    """The q that the guide starts at, ``None`` where it says nothing."""
    initial = next(iter(problem.clients.values())).approximation.initial
    return None if initial is None else Posterior(problem.prior.family, initial, problem.prior.coordinates)


def check_acceleration(algorithm: Algorithm, schedule: Schedule, clients: tuple[str, ...], problem: Problem) -> None:
    """Raises ``ValueError`` where rounds are not synchronous or their map moves from round to round."""
    if not algorithm.factors:
        raise ValueError(
            f"acceleration mixes clients' factors, which algorithm {algorithm.name!r} does not have; leave it out"
        )
    if algorithm.max_rounds == 1:
        raise ValueError(f"acceleration mixes rounds, but algorithm {algorithm.name!r} makes one; leave it out")
    if not is_synchronous(schedule, clients, 0):
        raise ValueError(
            f"acceleration mixes whole rounds and needs a synchronous schedule, got {schedule.name!r}; leave "
            "acceleration out, or use schedule='synchronous'"
        )
    if problem.setup.hyperparameters.names:
        raise ValueError(
            "acceleration needs rounds that all apply the same map; learned hyperparameters move it. Learn them "
            "without acceleration first, then fix them"
        )


def check_columns(columns: Sequence[str], prior: Posterior) -> None:
    """Raises ``ValueError`` for names that fit no site or that stand twice."""
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise ValueError(f"columns: {twice} stand twice; features need names of their own")
    lengths = {site.name: site.shape for site in prior.coordinates.sites}
    if not any(len(columns) in shape for shape in lengths.values()):
        raise ValueError(f"columns: {len(columns)} names fit no dimension of the sites' shapes {lengths}")


def _state_bytes(problem: Problem, acceleration: Anderson | None, algorithm: Algorithm) -> int:
    """What all clients' factors and updates take: those of this round, of the one before, and what is remembered.

    A solver of the algorithm's own may keep a posterior and the moments of two optimisers.
    """
    copies = (3 if acceleration is None else 3 + 2 * acceleration.memory) + (0 if algorithm.solver is None else 5)
    numbers = sum(part.family.num_natural for part in problem.clients.values())
    return copies * numbers * problem.prior.natural.element_size()


def _stream(seed: int, index: int) -> int:
    """A client's own seed, within what torch's generators take."""
    return 1_000_003 * (seed * 10_007 + index) % 2**62
