"""A client: it holds its factor, its own latents and its rows, and answers a q with the change of its factor."""

import time
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.cavities import CavityRule, Setting
from pvi.factors import Factor, damp, divide, is_finite, multiply, power, unit
from pvi.objectives import LocalProblem
from pvi.posterior import Posterior
from pvi.solvers import Given, LocalSolver, Personal, PersonalSolver, SolverInfo, Visit


class ClientState(NamedTuple):
    """What a client keeps between visits. It never leaves the client.

    ``seed`` is the client's own; together with ``visits`` it fixes every random draw. ``conditional`` is η of
    q(z | θ), the client's own latents given the shared ones (``None`` where it has none). ``personal`` is what the
    algorithm's own solver keeps, such as a personal posterior (``None`` before the first visit, and for other solvers).
    """

    factor: Factor
    visits: int
    seed: int
    conditional: Tensor | None = None
    personal: Personal | None = None


class Update(NamedTuple):
    """What a client sends back: its name, the change Δ of its factor (damping applied), and what it adds beside q.

    See :attr:`~pvi.cavities.Setting.beside`; ``None`` where the algorithm has no such thing.
    """

    client: str
    delta: Factor
    beside: Tensor | None = None


class ClientInfo(NamedTuple):
    """What a person may want to know about one visit.

    ``rejected`` says why the update was not used (empty: it was); ``max_delta`` is max |Δη|; ``step_fraction`` the
    part of Δ that kept q proper, filled in by the server's answer. ``staleness`` counts the server's steps between
    the q that the client worked on and the one that its update was applied to. ``executor`` names what ran the step.
    """

    client: str
    rejected: str
    max_delta: float
    step_fraction: float
    seconds: float
    solver: SolverInfo | None
    staleness: int = 0
    executor: str = "loop"


def init(problem: LocalProblem, like: Tensor, seed: int) -> ClientState:
    """t_m = 1."""
    return ClientState(unit(problem.extension.shared, like), 0, seed, problem.conditional)


class Prepared(NamedTuple):
    """A visit before its local solve: the ``cavity``, the factor ``replaced`` by q_m / cavity, and what is solved.

    ``target`` is the cavity over all latents of the client, ``start`` a proper q to start from, ``setting`` what the
    client was told.
    """

    cavity: Factor
    replaced: Factor
    target: Tensor
    start: Tensor
    seed: int
    setting: Setting


def prepare(
    state: ClientState, problem: LocalProblem, posterior: Posterior, setting: Setting, cavity_rule: CavityRule
) -> Prepared:
    """The visit's cavity (algorithm 1, client's part), and where its solve starts."""
    cavity, replaced = cavity_rule(posterior, state.factor, setting)
    initial = problem.approximation.initial
    # The guide says where to start from nothing; once others' rows are in q, q is the better start.
    shared = posterior.natural if initial is None or setting.version else initial.to(posterior.natural)
    start = problem.local(shared, state.conditional)
    return Prepared(cavity, replaced, problem.local_cavity(cavity.natural), start, state.seed + state.visits, setting)


def step(
    state: ClientState,
    problem: LocalProblem,
    posterior: Posterior,
    setting: Setting,
    cavity_rule: CavityRule,
    solver: LocalSolver,
    damping: float,
) -> tuple[ClientState, Update | None, ClientInfo]:
    """One refinement (algorithm 1, client's part): cavity, local VI, new factor, damped change.

    The factor itself moves in :func:`accept`, once the server says which part of Δ it applied. A result that is not
    finite or not proper gives no update, and the info says why.
    """
    began = time.perf_counter()
    ready = prepare(state, problem, posterior, setting, cavity_rule)
    try:
        visit = solve(solver, state, problem, ready)
    except torch.linalg.LinAlgError as error:
        rejected = f"the local solve broke down ({error}); the factor stays"
        seconds = time.perf_counter() - began
        return _visited(state), None, ClientInfo(problem.client, rejected, 0.0, 0.0, seconds, None)
    except Exception as error:
        error.add_note(f"raised in the local solve of client {problem.client!r}, visit {state.visits + 1}")
        raise
    return conclude(state, problem, ready, visit, damping, time.perf_counter() - began)


def solve(solver: LocalSolver, state: ClientState, problem: LocalProblem, ready: Prepared) -> Visit:
    """The local solve, by a solver that keeps something of the client's from visit to visit or by one that does not."""
    if isinstance(solver, PersonalSolver):
        return solver.visit(problem, given(state, ready))
    natural, info = solver.solve(problem, ready.target, ready.start, ready.seed)
    return Visit(natural, None, info)


def given(state: ClientState, ready: Prepared) -> Given:
    """What a solver that is part of its algorithm starts a visit from."""
    return Given(ready.cavity.natural, ready.setting, state.personal, ready.seed)


def conclude(
    state: ClientState, problem: LocalProblem, ready: Prepared, visit: Visit, damping: float, seconds: float
) -> tuple[ClientState, Update | None, ClientInfo]:
    """The damped change of the factor that a solve's η of q_m ``[num_natural]`` gives, if it is one."""
    natural, solved = visit.natural, visit.info
    new, rejected = _new_factor(problem, ready.cavity, natural)
    visited = _visited(state)
    own = None if visit.personal is None else visit.personal.natural
    if own is not None and not bool(problem.family.is_proper(own)):
        new, rejected = None, "the local solve ended in an improper personal posterior; it stays"
    if new is None:
        rejected += f" ({solved.message})" if solved.message else ""
        return visited, None, ClientInfo(problem.client, rejected, 0.0, 0.0, seconds, solved)
    if visit.personal is not None:
        visited = visited._replace(personal=visit.personal)
    damped = damp(ready.replaced, new, damping)
    update = Update(problem.client, divide(damped, ready.replaced), visit.beside)
    if state.conditional is not None:
        visited = visited._replace(conditional=problem.extension.conditional(natural))
    largest = update.delta.natural.abs().max().item()
    return visited, update, ClientInfo(problem.client, "", largest, 1.0, seconds, solved)


def accept(state: ClientState, update: Update, fraction: float) -> ClientState:
    """The factor after the server applied ``fraction`` of the update."""
    return state._replace(factor=multiply(state.factor, power(update.delta, fraction)))


def _visited(state: ClientState) -> ClientState:
    return state._replace(visits=state.visits + 1)


def _new_factor(problem: LocalProblem, cavity: Factor, natural: Tensor) -> tuple[Factor | None, str]:
    """q_m / cavity, or why it is not used."""
    if not bool(torch.isfinite(natural).all()):
        return None, "the local solve ended in values that are not finite; the factor stays"
    if not bool(problem.family.is_proper(natural)):
        return None, "the local solve ended in an improper q; the factor stays"
    family, marginal = problem.extension.shared, problem.extension.marginal(natural)
    new = divide(Factor(family, marginal, -family.log_partition(marginal)), cavity)
    if not is_finite(new):
        return None, "the new factor is not finite; the factor stays"
    return new, ""
