"""Where local solves start: at the guide's initial values while q is the prior, afterwards at q."""

import pyro
import pyro.distributions as dist
import pytest
import torch

import pvi
from pvi.solvers import SolverInfo

START = torch.tensor([0.3, -0.2], dtype=torch.float64)


def model(x, y=None):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(torch.tanh(x @ weights), 0.5), obs=y)


def guide(x, y=None):
    pyro.sample("weights", dist.Normal(START, 0.1).to_event(1))


class Recorder:
    """A solver that goes half way from its start to q of mean 1, and remembers where it started."""

    name = "recorder"

    def __init__(self):
        self.starts = []

    def solve(self, problem, cavity, start, seed):
        self.starts.append(problem.family.moments(start)[0])
        goal = problem.family.natural_from_free(torch.cat([torch.ones(2), torch.zeros(2)]).to(start))
        return 0.5 * start + 0.5 * goal, SolverInfo(1, 0.0, True, "")


def starts(schedule, rounds=1, with_guide=guide):
    x = torch.ones(4, 2, dtype=torch.float64)
    clients = dict.fromkeys(("a", "b", "c"), (x, x[:, 0]))
    recorder = Recorder()
    pvi.fit(model, clients, with_guide, schedule=schedule, damping=0.5, rounds=rounds, solver=recorder, executor="loop")
    return recorder.starts


@pytest.mark.parametrize("schedule", ["synchronous", "sequential"])
def test_the_first_starts_are_the_guides(schedule):
    found = starts(schedule)
    guided = [torch.allclose(start, START) for start in found]
    assert guided == ([True] * 3 if schedule == "synchronous" else [True, False, False])


def test_later_ones_are_the_servers_q():
    x = torch.ones(4, 2, dtype=torch.float64)
    recorder, seen = Recorder(), []
    pvi.fit(model, {"a": (x, x[:, 0])}, guide, damping=0.5, rounds=3, solver=recorder, executor="loop",
            progress=lambda record, q: seen.append(q.mean["weights"]))  # fmt: skip
    assert torch.allclose(recorder.starts[0], START)
    for start, mean in zip(recorder.starts[1:], seen, strict=False):
        assert torch.allclose(start, mean)


def test_without_a_guide_they_start_at_q():
    assert torch.equal(starts("sequential", with_guide=None)[0], torch.zeros(2, dtype=torch.float64))


class FailsOnce(Recorder):
    """The first solves end in nothing that could be used."""

    def __init__(self, failures):
        super().__init__()
        self.failures = failures

    def solve(self, problem, cavity, start, seed):
        natural, info = super().solve(problem, cavity, start, seed)
        return (natural * torch.nan if len(self.starts) <= self.failures else natural), info


@pytest.mark.parametrize(("schedule", "failures"), [("synchronous", 2), ("sequential", 1)])
def test_rejected_solves_leave_the_start_to_the_guide(schedule, failures):
    x = torch.ones(4, 2, dtype=torch.float64)
    clients, solver = dict.fromkeys(("a", "b"), (x, x[:, 0])), FailsOnce(failures)
    pvi.fit(model, clients, guide, schedule=schedule, damping=0.5, rounds=2, solver=solver, executor="loop")
    guided = [torch.allclose(start, START) for start in solver.starts]
    assert guided == ([True] * 4 if schedule == "synchronous" else [True, True, False, False])
