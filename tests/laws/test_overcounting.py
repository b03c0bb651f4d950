"""Streaming VB deletes nothing at a revisit: after r passes the rows count r times. PVI counts them once.

In a conjugate model q after r passes is exactly p · L^r, and under a weak prior its standard deviations fall as 1 / √r.
"""

import numpy as np
import pytest
import torch
from laws.federations import MODELS, NOISE, designs, oracle_moments, oracle_natural, play, pooled, regression
from oracles import linear_regression, streaming_vb

from pvi.factors import as_factor, multiply
from pvi.solvers import Newton

PASSES = 4


def standard_deviations(state):
    covariance = oracle_moments(state.server.posterior)[1]
    return np.sqrt(covariance if covariance.ndim == 1 else np.diag(covariance))


def test_conjugate_streaming_is_the_prior_times_a_power_of_the_likelihood():
    data = regression("gaussian")
    design, y = pooled(data)
    size = design.shape[1]
    states = list(play(MODELS["gaussian"], data, PASSES, guide="full", algorithm="streaming-vb"))
    for passes, state in enumerate(states, start=1):
        repeated = linear_regression(np.tile(design, (passes, 1)), np.tile(y, passes), noise_scale=NOISE)
        mean, covariance = oracle_moments(state.server.posterior)
        assert mean == pytest.approx(repeated[0], abs=1e-8)
        assert covariance == pytest.approx(repeated[1], abs=1e-8)
        precision = oracle_natural(state.server.posterior.family, state.server.posterior.natural)[1]
        assert precision == pytest.approx(np.eye(size) + passes * design.T @ design / NOISE**2, abs=1e-8)
    spread = np.array([standard_deviations(state) for state in states])
    roots = 1 / np.sqrt(np.arange(1, PASSES + 1))
    # The prior's share of the precision, 1 of tens, is all that differs.
    assert spread / spread[0] == pytest.approx(np.tile(roots[:, None], size), rel=0.03)


def test_conjugate_pvi_stands_still_after_the_first_pass():
    data = regression("gaussian")
    mean, covariance, evidence = linear_regression(*pooled(data), noise_scale=NOISE)
    states = list(play(MODELS["gaussian"], data, PASSES, guide="full", schedule="sequential", damping=1.0))
    for state in states:
        found = oracle_moments(state.server.posterior)
        assert found[0] == pytest.approx(mean, abs=1e-8)
        assert found[1] == pytest.approx(covariance, abs=1e-8)
        assert state.history[-1].elbo == pytest.approx(evidence, abs=1e-8)
    assert all(state.history[-1].max_delta < 1e-7 for state in states[1:])


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_standard_deviations_shrink_at_every_pass_and_those_of_pvi_do_not(likelihood, guide):
    data = regression(likelihood)
    kind = "diagonal" if guide is None else "full"
    options = {"guide": guide, "solver": Newton(tolerance=1e-10)}
    streaming = list(play(MODELS[likelihood], data, PASSES, algorithm="streaming-vb", **options))
    oracle = streaming_vb(designs(data), likelihood, covariance=kind, rounds=PASSES)
    for state, (h, precision) in zip(streaming, oracle.posteriors, strict=True):
        posterior = state.server.posterior
        found = oracle_natural(posterior.family, posterior.natural)
        assert found[0] == pytest.approx(h, rel=1e-6, abs=1e-6)
        assert found[1] == pytest.approx(precision, rel=1e-6, abs=1e-6)
    spread = np.array([standard_deviations(state) for state in streaming])
    ratios = spread[1:] / spread[:-1]
    assert (ratios < 0.95).all()
    after = np.arange(1, PASSES)
    assert ratios.mean(1) == pytest.approx(np.sqrt(after / (after + 1)), rel=0.1)
    elbos = [state.history[-1].elbo for state in streaming]
    pvi_states = list(play(MODELS[likelihood], data, PASSES, schedule="sequential", damping=1.0, **options))
    steady = np.array([standard_deviations(state) for state in pvi_states])
    assert steady[1:] / steady[:-1] == pytest.approx(1, abs=0.1)
    assert pvi_states[-1].history[-1].elbo > elbos[-1] + 0.5


@pytest.mark.parametrize("likelihood", MODELS)
def test_the_factors_hold_every_count(likelihood):
    """Nothing is lost by it: p Π t_m is still q, and the factors of r passes are r times as strong."""
    data = regression(likelihood)
    states = list(play(MODELS[likelihood], data, 2, algorithm="streaming-vb", guide="full"))
    for state in states:
        total = as_factor(state.server.prior)
        for client in state.clients.values():
            total = multiply(total, client.factor)
        assert torch.allclose(total.natural, state.server.posterior.natural, atol=1e-9)
        assert state.history[-1].drift < 1e-9
    if likelihood == "gaussian":
        for name, client in states[1].clients.items():
            assert torch.allclose(client.factor.natural, 2 * states[0].clients[name].factor.natural, atol=1e-7)
