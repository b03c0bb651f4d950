"""The law suite of executors: the reference loop's answers, in its order, and nothing else changed."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pvi.executors import Answer, Executor, Loop, Task
from pvi.families import Product, is_gaussian
from pvi.testing.executor_fixtures import Failing, Fixture, build, cases, failing, stochastic
from pvi.testing.purity import nothing_changed

REPEATED = ("logistic regression", "mini-batches")
"""Fixtures that must repeat bit for bit: a deterministic solver, and one that draws noise and rows."""
NOISE = 3.0
"""What two runs under one seed may differ, in units of two under different seeds (root mean squares over coordinates).

Were they as different as that, the ratio would exceed 3 with a chance of 1e-4 (15 coordinates)."""


def check_executor(executor: Executor, *, seed: int = 0, fresh: Callable[[], Executor] | None = None) -> None:
    """Check an :class:`~pvi.executors.Executor` against the reference :class:`~pvi.executors.Loop`.

    Clients of unequal size, with latents of their own, with data of different shapes, and models of several kinds
    (:mod:`pvi.testing.executor_fixtures`) are visited twice. Deterministic solvers agree to 1e-10 posterior standard
    deviations, a few steps of SVI to 1e-8, solves that run to their ends within their noise; step counts are equal.
    Answers come in the order of the tasks, for one task and for none too; a client whose solve breaks down gives no
    update and harms no other. Runs repeat bit for bit, and leave their arguments, torch's global random state, the
    default dtype and Pyro's parameter store alone.

    An executor that keeps graphs or data may round its second run differently: ``fresh`` makes new ones like it, and
    their first runs are those that must repeat.

    Raises:
        AssertionError: naming the executor, the fixture and the law.
    """
    _law(bool(executor.name), executor, "any", "it has no name")
    for case in cases().values():
        _check_fixture(executor, build(case, seed))
    for name in REPEATED:
        one, two = (executor, executor) if fresh is None else (fresh(), fresh())
        _check_repeats(one, two, build(cases()[name], seed))
    for broken in failing(seed):
        _check_failing(executor, broken)
    _check_noise(executor, stochastic(seed), seed)


def _check_fixture(executor: Executor, fixture: Fixture) -> None:
    """Two visits of everybody; between them one client alone, and all in another order."""
    first = fixture.tasks()
    reference = _run(Loop(), fixture, first)
    with nothing_changed(_tensors(first), _laws(executor, fixture.name)):
        found = _run(executor, fixture, first)
    _check_answers(executor, fixture, "first visit", first, reference, found)
    _check_terms(executor, fixture, first)
    _check_answers(executor, fixture, "alone", first[-1:], reference[-1:], _run(executor, fixture, first[-1:]))
    second = fixture.next_tasks(first, reference)[::-1]
    reference, found = _run(Loop(), fixture, second), _run(executor, fixture, second)
    _check_answers(executor, fixture, "second visit, in reverse", second, reference, found)
    _law(_run(executor, fixture, []) == [], executor, fixture.name, "there are answers to no tasks")


def _run(executor: Executor, fixture: Fixture, tasks: Sequence[Task]) -> list[Answer]:
    return executor.run(tasks, fixture.algorithm, fixture.solver, fixture.damping)


def _law(holds: bool, executor: Executor, name: str, broken: str) -> None:
    assert holds, f"{executor.name}, {name}: {broken}"


def _check_answers(
    executor: Executor,
    fixture: Fixture,
    visit: str,
    tasks: Sequence[Task],
    reference: Sequence[Answer],
    found: Sequence[Answer],
) -> None:
    where = f"{fixture.name}, {visit}"
    _law(len(found) == len(tasks), executor, where, f"{len(found)} answers to {len(tasks)} tasks")
    for task, wanted, given in zip(tasks, reference, found, strict=True):
        client = task.problem.client
        law = _laws(executor, f"{where}, client {client!r}")
        law(given.info.client == client, f"the answer in its place is that of {given.info.client!r}")
        law(given.state.visits == task.state.visits + 1, "the visit is not counted")
        law(given.state.seed == task.state.seed, "the seed is another one")
        law(torch.equal(given.state.factor.natural, task.state.factor.natural), "the factor moved before its update")
        law(given.info.rejected == wanted.info.rejected, f"rejected: {given.info.rejected!r}, {wanted.info.rejected!r}")
        law((given.update is None) == (wanted.update is None), "an update is missing, or there is one too many")
        law((given.state.conditional is None) == (wanted.state.conditional is None), "q(z | θ) is missing, or extra")
        if given.update is not None and wanted.update is not None:
            law(given.update.client == client, f"the update is that of {given.update.client!r}")
            apart = _deviations(task, wanted, given)
            law(apart <= fixture.allowed, f"{apart:.2g} posterior sd from the loop, allowed {fixture.allowed:g}")
            scales = [one.update.delta.log_scale.item() for one in (wanted, given) if one.update is not None]
            law(_close(*scales), f"the update's log scale is {scales[1]} instead of {scales[0]} nats")
        law(_close(wanted.info.max_delta, given.info.max_delta), "max_delta is not that of the loop")
        one, two = wanted.info.solver, given.info.solver
        law((one is None) == (two is None), "the solver's report is missing, or extra")
        if one is not None and two is not None:
            law(one.steps == two.steps, f"{two.steps} steps where the loop takes {one.steps}")
            same = (one.converged, one.message) == (two.converged, two.message)
            law(same, f"the solver says {two}, under the loop {one}")
            law(_close(one.free_energy, two.free_energy), f"F_m is {two.free_energy} instead of {one.free_energy} nats")


def _laws(executor: Executor, where: str) -> Callable[[bool, str], None]:
    return lambda holds, broken: _law(holds, executor, where, broken)


def _close(one: float, two: float) -> bool:
    """Equal up to 1e-6 of their size: sums over rows and steps."""
    return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(one) and math.isnan(two))


def _deviations(task: Task, wanted: Answer, given: Answer) -> float:
    """How far q · Δ is from that of the loop, the client's own latents included: posterior standard deviations."""
    ours, theirs = (_moved(task, answer) for answer in (wanted, given))
    family: Product = task.problem.family
    if is_gaussian(family):
        apart = (family.free(ours) - family.free(theirs)) / family.free_scale(ours)
    else:
        apart = (ours - theirs) / ours.abs().clamp(min=1.0)
    return float(apart.abs().max())


def _moved(task: Task, answer: Answer) -> Tensor:
    assert answer.update is not None
    return task.problem.local(task.posterior.natural + answer.update.delta.natural, answer.state.conditional)


def _bits(answer: Answer) -> str:
    """Everything but the time that it took; numbers in words, so that NaN equals itself."""
    delta = None if answer.update is None else answer.update.delta.natural.tolist()
    own = None if answer.state.conditional is None else answer.state.conditional.tolist()
    return repr((delta, own, answer.state.visits, answer.info._replace(seconds=0.0)))


def _check_repeats(one: Executor, two: Executor, fixture: Fixture) -> None:
    """The second run meets another global random state."""
    tasks = fixture.tasks()
    first = _run(one, fixture, tasks)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fixture.seed + 1)
        second = _run(two, fixture, tasks)
    for answer, again in zip(first, second, strict=True):
        _law(_bits(answer) == _bits(again), one, fixture.name, f"two runs differ at client {answer.info.client!r}")


def _check_terms(executor: Executor, fixture: Fixture, tasks: Sequence[Task]) -> None:
    natural, own = tasks[0].posterior.natural, [task.state.conditional for task in tasks]
    wanted = Loop().terms(fixture.problems, natural, own)
    given = executor.terms(fixture.problems, natural, own)
    _law(len(given) == len(wanted), executor, fixture.name, f"{len(given)} terms of F for {len(wanted)} clients")
    for task, one, two in zip(tasks, wanted, given, strict=True):
        same = _close(one.value, two.value) and _close(one.standard_error, two.standard_error)
        _law(same, executor, fixture.name, f"F's term of client {task.problem.client!r} is {two} instead of {one}")


def _check_failing(executor: Executor, case: Failing) -> None:
    """The one client's update is rejected in the loop's words, and the others' are the loop's."""
    fixture, tasks = case.fixture, case.tasks
    reference, found = _run(Loop(), fixture, tasks), _run(executor, fixture, tasks)
    assert [answer.update is None for answer in reference] == [k == case.position for k in range(len(tasks))]
    _check_answers(executor, fixture, "first visit", tasks, reference, found)


def _check_noise(executor: Executor, fixture: Fixture, seed: int) -> None:
    tasks, others = fixture.tasks(), fixture._replace(seed=seed + 1).tasks()
    reference, other = _run(Loop(), fixture, tasks), _run(Loop(), fixture, others)
    found = _run(executor, fixture, tasks)
    noise, apart = (_root_mean_square(tasks, reference, answers) for answers in (other, found))
    said = f"{apart:.2g} posterior sd from the loop under the same seeds, which is {noise:.2g} from itself under others"
    _law(apart <= NOISE * noise, executor, fixture.name, said)


def _root_mean_square(tasks: Sequence[Task], one: Sequence[Answer], two: Sequence[Answer]) -> float:
    pieces = []
    for task, ours, theirs in zip(tasks, one, two, strict=True):
        family = task.problem.family
        assert is_gaussian(family)
        mine = _moved(task, ours)
        pieces.append((family.free(mine) - family.free(_moved(task, theirs))) / family.free_scale(mine))
    return float(torch.cat(pieces).square().mean().sqrt())


def _tensors(tasks: Sequence[Task]) -> list[Tensor]:
    """All that the tasks hold."""
    found: list[Tensor] = []
    for task in tasks:
        own = [] if task.state.conditional is None else [task.state.conditional]
        data = [value for value in task.problem.batch.values() if isinstance(value, Tensor)]
        found += [task.state.factor.natural, task.posterior.natural, task.setting.prior.natural, *own, *data]
    return found
