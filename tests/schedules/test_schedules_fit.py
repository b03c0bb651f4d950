"""Runs: whatever the schedule, the factors sum to the posterior and the run ends where the synchronous one does."""

import pytest
import torch
from schedules.kinds import Late

import pvi
from pvi.schedules import Asynchronous, Dropouts, RandomSubset, Sequential, Synchronous

CASES = {
    "shuffled": lambda: Sequential(order="shuffled"),
    "asynchronous": lambda: Asynchronous(latency=[1.0, 1.3, 4.0], jitter=0.2),
    "random subset": lambda: RandomSubset(size=2),
    "dropouts": lambda: Dropouts(Synchronous(), {"a": [(2, 5)], "b": [(4, 6)], "c": [(4, 5)]}),
    "dropouts, asynchronous": lambda: Dropouts(Asynchronous(latency=[1.0, 1.3, 4.0]), {"c": [(3, 9)]}),
    "dropouts, late": lambda: Dropouts(Late(), {"a": [(2, 4)]}),
}


def fit(schedule, **options):
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(90, 2, dtype=torch.float64, generator=generator)
    y = torch.bernoulli(torch.sigmoid(x[:, 0] - 0.5), generator=generator)
    clients = {name: (x[index::3], y[index::3]) for index, name in enumerate("abc")}
    return pvi.fit("logistic_regression", clients, schedule=schedule, **{"damping": 0.5, "rounds": 40, **options})


@pytest.fixture(scope="module")
def synchronous():
    return fit("synchronous")


@pytest.mark.parametrize("case", CASES)
def test_every_schedule_has_the_same_fixed_point(case, synchronous):
    result = fit(CASES[case]())
    total = result.prior.natural + sum(factor.natural for factor in result.factors.values())
    assert torch.allclose(total, result.posterior.natural, atol=1e-10)
    assert result.elbo == pytest.approx(synchronous.elbo, abs=1e-4)


def test_a_round_in_which_nobody_is_there_leaves_q_as_it_was():
    result = fit(Dropouts(Synchronous(), {name: [(1, 2)] for name in "abc"}), rounds=3)
    first, second, third = result.history
    assert second.elbo == first.elbo != third.elbo
    assert second.communications == 0


def test_one_pass_is_a_sequential_round():
    once, sequential = (fit(name, damping=1.0, rounds=1) for name in ("single-pass", "sequential"))
    assert torch.equal(once.posterior.natural, sequential.posterior.natural)
