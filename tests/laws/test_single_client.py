"""M = 1 is global VI: the cavity of the only client is the prior, whatever its factor."""

import pytest
import torch
from laws.federations import MODELS, NOISE, begin, last, oracle_moments, play, pooled, regression
from oracles import global_vi

import pvi
from pvi.factors import cavity
from pvi.schedules import Asynchronous, Dropouts, RandomSubset, Sequential, SinglePass, Synchronous
from pvi.solvers import Newton

SOLVER = Newton(tolerance=1e-10)
SCHEDULES = {
    "synchronous": (Synchronous(), 3),
    "sequential": (Sequential(), 3),
    "shuffled": (Sequential(order="shuffled", seed=2), 3),
    "asynchronous": (Asynchronous(latency=[0.7], jitter=0.3), 3),
    "random subset": (RandomSubset(size=1, seed=0), 3),
    "single pass": (SinglePass(), 1),
    "dropouts": (Dropouts(Synchronous(), away={"client 0": [(1, 2)]}), 3),
}


def one_client(data):
    """All rows at one client."""
    return [tuple(torch.cat(parts) for parts in zip(*data, strict=True))]


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_one_round_is_the_optimum_of_the_pooled_rows(likelihood, guide):
    data = regression(likelihood)
    state = last(play(MODELS[likelihood], one_client(data), 1, guide=guide, damping=1.0, solver=SOLVER))
    kind = "diagonal" if guide is None else "full"
    best = global_vi(*pooled(data), likelihood, covariance=kind, noise_scale=NOISE)
    mean, covariance = oracle_moments(state.server.posterior)
    assert mean == pytest.approx(best.mean, abs=1e-7)
    assert covariance == pytest.approx(best.covariance, abs=1e-7)
    assert state.history[-1].elbo == pytest.approx(best.elbo, abs=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("likelihood", MODELS)
def test_the_schedule_makes_no_difference(likelihood, schedule):
    """Undamped, the first visit ends there, and no later one moves q."""
    data = one_client(regression(likelihood))
    order, rounds = SCHEDULES[schedule]
    reference = last(play(MODELS[likelihood], data, 1, algorithm="global-vi", solver=SOLVER)).server.posterior
    for state in play(MODELS[likelihood], data, rounds, schedule=order, damping=1.0, solver=SOLVER):
        assert torch.allclose(state.server.posterior.natural, reference.natural, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("likelihood", MODELS)
def test_global_vi_pools_the_rows_of_all_clients(likelihood):
    data = regression(likelihood)
    pooled_by_algorithm = pvi.fit(MODELS[likelihood], data, algorithm="global-vi", solver=SOLVER)
    one = pvi.fit(MODELS[likelihood], one_client(data), damping=1.0, rounds=1, solver=SOLVER)
    assert len(pooled_by_algorithm.factors) == 1
    assert torch.allclose(pooled_by_algorithm.posterior.natural, one.posterior.natural, rtol=1e-8, atol=1e-8)
    assert pooled_by_algorithm.elbo == pytest.approx(one.elbo, abs=1e-8)


@pytest.mark.parametrize("likelihood", MODELS)
def test_damped_rounds_go_there_geometrically(likelihood):
    """Every round solves the same problem, so η_q - η_p = (1 - (1 - ρ)^r) (η* - η_p) exactly."""
    data, rho = one_client(regression(likelihood)), 0.3
    best = last(play(MODELS[likelihood], data, 1, algorithm="global-vi", solver=SOLVER)).server.posterior.natural
    _, state = begin(MODELS[likelihood], data)
    prior = state.server.prior
    for number, state in enumerate(play(MODELS[likelihood], data, 6, damping=rho, solver=SOLVER), start=1):
        expected = prior.natural + (1 - (1 - rho) ** number) * (best - prior.natural)
        assert torch.allclose(state.server.posterior.natural, expected, rtol=1e-7, atol=1e-7)
        (client,) = state.clients.values()
        rest = cavity(state.server.posterior, client.factor)
        assert torch.allclose(rest.natural, prior.natural, rtol=1e-12, atol=1e-12)
