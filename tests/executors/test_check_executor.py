"""The library's executors pass the law suite; those that are wrong in one place do not."""

from dataclasses import replace
from functools import partial

import pyro
import pytest
import torch

from pvi.executors import Answer, Auto, Loop, Vectorised
from pvi.testing import check_executor
from pvi.testing.executor_fixtures import build, cases, failing, stochastic
from pvi.testing.executors import _check_failing, _check_fixture, _check_noise, _check_repeats

SVI_CASE, EXACT_CASE = "a robust mean", "logistic regression"


SOME = (EXACT_CASE, "linear regression in closed form", "mini-batches", "an intercept a client, full covariance")
"""The other programs are fitted under both executors by the tests beside this one."""


@pytest.mark.parametrize("name", SOME)
def test_the_vectorised_executor_keeps_the_laws(name):
    _check_fixture(Vectorised(compile=False), build(cases()[name], 0))


def test_the_vectorised_executor_repeats():
    fresh = partial(Vectorised, compile=False)
    _check_repeats(fresh(), fresh(), build(cases()[SVI_CASE], 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fresh",
    [Loop, Auto, partial(Vectorised, compile=False), partial(Vectorised, compile=False, max_clients_at_once=2)],
    ids=repr,
)
def test_executors_pass(fresh):
    check_executor(fresh(), seed=3, fresh=fresh)


@pytest.mark.parametrize("name", cases())
def test_fixtures_are_worth_checking(name):
    """Everybody's update is used, twice, and moves q by more than answers may differ (closed forms: at once)."""
    fixture = build(cases()[name], 0)
    tasks = fixture.tasks()
    for visit in range(2):
        answers = Loop().run(tasks, fixture.algorithm, fixture.solver, fixture.damping)
        assert all(answer.update is not None for answer in answers)
        if visit == 0:
            assert all(answer.info.max_delta > 1e4 * fixture.allowed for answer in answers)
        tasks = fixture.next_tasks(tasks, answers)
    assert len({task.problem.batch.num_rows for task in tasks}) == 3


class Wrong:
    """The loop, but for one thing."""

    name = "wrong"

    def run(self, tasks, algorithm, solver, damping, store=None):
        return Loop().run(tasks, algorithm, solver, damping)

    def terms(self, problems, natural, conditionals):
        return Loop().terms(problems, natural, conditionals)


class Reversed(Wrong):
    def run(self, *arguments):
        return super().run(*arguments)[::-1]


class Forgetful(Wrong):
    def run(self, *arguments):
        return super().run(*arguments)[:1]


class Refusing(Wrong):
    def run(self, *arguments):
        return [answer._replace(update=None) for answer in super().run(*arguments)]


class Impatient(Wrong):
    """Factors move before the server answered."""

    def run(self, *arguments):
        found = super().run(*arguments)
        return [one._replace(state=one.state._replace(factor=one.update.delta)) for one in found]


class Uncounted(Wrong):
    def run(self, tasks, *rest):
        found = zip(tasks, super().run(tasks, *rest), strict=True)
        return [one._replace(state=one.state._replace(visits=task.state.visits)) for task, one in found]


class Nudged(Wrong):
    """A millionth of a standard deviation, or so."""

    def run(self, *arguments):
        return [nudged(answer, 1e-6) for answer in super().run(*arguments)]


def nudged(answer: Answer, by: float) -> Answer:
    delta = answer.update.delta
    moved = replace(delta, natural=delta.natural + by * delta.natural.abs().max())
    return answer._replace(update=answer.update._replace(delta=moved))


class Random(Wrong):
    def run(self, *arguments):
        return [nudged(answer, 1e-13 * torch.rand(()).item()) for answer in super().run(*arguments)]


class Longer(Wrong):
    def run(self, *arguments):
        found = super().run(*arguments)
        solved = [one.info.solver._replace(steps=one.info.solver.steps + 1) for one in found]
        return [one._replace(info=one.info._replace(solver=info)) for one, info in zip(found, solved, strict=True)]


class Seeding(Wrong):
    def run(self, *arguments):
        torch.manual_seed(0)
        return super().run(*arguments)


class Storing(Wrong):
    def run(self, *arguments):
        pyro.param("mine", torch.tensor(1.0))
        return super().run(*arguments)


class InPlace(Wrong):
    def run(self, tasks, *rest):
        found = super().run(tasks, *rest)
        for task in tasks:
            task.posterior.natural.mul_(1.0 + 1e-12)
        return found


class Eager(Wrong):
    """Answers where nobody was asked."""

    def run(self, tasks, *rest):
        found = super().run(tasks, *rest)
        self.last = found or self.last
        return found or self.last


class Biased(Wrong):
    def terms(self, *arguments):
        return [one._replace(value=one.value + 0.01) for one in super().terms(*arguments)]


LAWS = [
    (Reversed(), "the answer in its place is that of 'client 3'"),
    (Forgetful(), "1 answers to 4 tasks"),
    (Refusing(), "an update is missing, or there is one too many"),
    (Impatient(), "the factor moved before its update"),
    (Uncounted(), "the visit is not counted"),
    (Nudged(), "posterior sd from the loop, allowed 1e-10"),
    (Random(), "moved torch's global random state"),
    (Longer(), "steps where the loop takes"),
    (Seeding(), "moved torch's global random state"),
    (Storing(), "left .* in Pyro's parameter store"),
    (InPlace(), "changed its arguments in place"),
    (Eager(), "there are answers to no tasks"),
    (Biased(), "F's term of client 'client 0' is"),
]


@pytest.mark.parametrize(("executor", "law"), LAWS, ids=lambda value: type(value).__name__)
def test_what_breaks_a_law_is_named(executor, law):
    with pytest.raises(AssertionError, match=rf"^wrong, {EXACT_CASE}.*{law}"):
        _check_fixture(executor, build(cases()[EXACT_CASE], 0))


class Unrepeatable(Wrong):
    """Another answer at every call, without a trace in the global state."""

    def __init__(self):
        self.calls = 0

    def run(self, *arguments):
        self.calls += 1
        return [nudged(answer, 1e-14 * self.calls) for answer in super().run(*arguments)]


def test_runs_repeat_to_the_last_bit():
    with pytest.raises(AssertionError, match="two runs differ at client"):
        _check_repeats(executor := Unrepeatable(), executor, build(cases()[SVI_CASE], 0))


class Spreading(Wrong):
    """One client that breaks down takes everybody along."""

    def run(self, *arguments):
        found = super().run(*arguments)
        broken = [one.info.rejected for one in found if one.update is None]
        return (
            [one._replace(update=None, info=one.info._replace(rejected=broken[0])) for one in found]
            if broken
            else found
        )


def test_a_client_that_breaks_down_harms_no_other():
    for case in failing(0):
        _check_failing(Loop(), case)
        with pytest.raises(AssertionError, match=f"^wrong, {case.fixture.name}.*rejected"):
            _check_failing(Spreading(), case)


class Noisy(Wrong):
    """Its noise is another at the same seed, and a lot more."""

    def run(self, *arguments):
        return [nudged(answer, 1.0) for answer in super().run(*arguments)]


def test_long_solves_agree_within_their_noise():
    with pytest.raises(AssertionError, match="posterior sd from the loop under the same seeds"):
        _check_noise(Noisy(), stochastic(0), 0)
