"""One sequential pass from t = 1 without revisits is online VI (VCL): each posterior is the next client's prior.

The chain is built by the oracle, one fit of global VI a client with the last Gaussian as its prior.
"""

import numpy as np
import pytest
from laws.federations import MODELS, NOISE, designs, last, oracle_moments, play, pooled, regression
from oracles import global_vi, linear_regression

from pvi.schedules import SinglePass
from pvi.solvers import Newton

SOLVER = Newton(tolerance=1e-10)
WAYS = {
    "vcl": {"algorithm": "vcl"},
    "sequential PVI": {"schedule": "sequential", "damping": 1.0},
    "single pass": {"schedule": SinglePass(), "damping": 1.0},
    "streaming VB": {"algorithm": "streaming-vb"},
}


def chain(data, likelihood, guide):
    """(mean, covariance) after each client, by the oracle."""
    size = data[0][0].shape[1] + 1
    mean, precision, kind = np.zeros(size), np.eye(size), "diagonal" if guide is None else "full"
    found = []
    for design, y in designs(data):
        best = global_vi(design, y, likelihood, mean, precision, kind, NOISE)
        mean, precision = best.mean, best.natural[1]
        found.append((best.mean, best.covariance))
    return found


def close(posterior, moments, tolerance=1e-7):
    return all(
        np.abs(one - other).max() < tolerance for one, other in zip(oracle_moments(posterior), moments, strict=True)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_it_is_the_chain_of_priors(likelihood, guide, way):
    data = regression(likelihood)
    state = last(play(MODELS[likelihood], data, 1, guide=guide, solver=SOLVER, **WAYS[way]))
    assert close(state.server.posterior, chain(data, likelihood, guide)[-1])


@pytest.mark.parametrize("likelihood", MODELS)
def test_after_every_client(likelihood):
    """A pass over the first k clients ends at the k-th link."""
    data = regression(likelihood)
    for k, link in enumerate(chain(data, likelihood, None), start=1):
        state = last(play(MODELS[likelihood], data[:k], 1, algorithm="vcl", solver=SOLVER))
        assert close(state.server.posterior, link)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_the_order_matters_unless_the_model_is_conjugate(likelihood):
    """Backwards and forwards end differently, and neither at the optimum that revisits reach."""
    data = regression(likelihood)
    forwards, backwards = (
        last(play(MODELS[likelihood], rows, 1, algorithm="vcl", solver=SOLVER)) for rows in (data, data[::-1])
    )
    best = global_vi(*pooled(data), likelihood).elbo
    for state in (forwards, backwards):
        assert state.history[-1].elbo < best - 1e-4
    assert (forwards.server.posterior.natural - backwards.server.posterior.natural).abs().max() > 1e-2
    revisited = last(play(MODELS[likelihood], data, 12, schedule="sequential", damping=1.0))
    assert revisited.history[-1].elbo == pytest.approx(best, abs=1e-4)


def test_in_a_conjugate_model_either_order_is_exact():
    data = regression("gaussian")
    mean, covariance, evidence = linear_regression(*pooled(data), noise_scale=NOISE)
    for rows in (data, data[::-1]):
        state = last(play(MODELS["gaussian"], rows, 1, guide="full", algorithm="vcl"))
        assert close(state.server.posterior, (mean, covariance), 1e-8)
        assert state.history[-1].elbo == pytest.approx(evidence, abs=1e-8)


def test_there_is_no_second_pass():
    with pytest.raises(ValueError, match="at most 1"):
        last(play(MODELS["gaussian"], regression("gaussian"), 2, algorithm="vcl"))
