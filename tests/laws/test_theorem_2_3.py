"""Theorem 2.3: a fixed point of PVI is an optimum of global VI, and the other way round.

The global free energy of the pooled rows, its gradient and its maximum come from the oracles. At a fixed point the
gradient in the free parameters (means and log standard deviations, or means and Cholesky factor) is zero.
"""

import numpy as np
import pytest
import torch
from laws.federations import (
    MODELS,
    NOISE,
    begin,
    designs,
    library_natural,
    oracle_moments,
    play,
    pooled,
    regression,
    site_parameters,
)  # fmt: skip
from oracles import LocalObjective, global_vi

from pvi.client import step
from pvi.factors import Factor
from pvi.play import play_round
from pvi.posterior import Posterior
from pvi.schedules import Asynchronous, Sequential
from pvi.server import setting
from pvi.solvers import Newton

SOLVER = Newton(tolerance=1e-10)
WAYS = {
    "sequential": {"schedule": "sequential", "damping": 1.0, "rounds": 60},
    "Anderson": {"schedule": "synchronous", "damping": 0.5, "acceleration": "anderson", "rounds": 60},
}


def converged(likelihood, guide, way, data):
    """The state where a round moves no posterior mean by more than 1e-10 standard deviations."""
    options = dict(WAYS[way])
    for state in play(MODELS[likelihood], data, options.pop("rounds"), guide=guide, solver=SOLVER, **options):
        if state.history[-1].max_shift < 1e-10:
            return state
    raise AssertionError(f"no fixed point: the last round moved a mean by {state.history[-1].max_shift:.1e} sd")


def slopes(objective, mean, covariance):
    """The gradient of F in free parameters, each times the size of a natural step (sd for means, 1 for the others)."""
    if covariance.ndim == 1:
        _, gradient, hessian = objective.diagonal(np.r_[mean, 0.5 * np.log(covariance)])
        assert np.linalg.eigvalsh(hessian)[-1] < 0
        return np.r_[gradient[: len(mean)] * np.sqrt(covariance), gradient[len(mean) :]]
    factor = np.linalg.cholesky(covariance)
    factor[np.diag_indices(len(mean))] = np.log(np.diag(factor))
    gradient = objective.full(np.r_[mean, factor[np.tril_indices(len(mean))]])[1]
    return np.r_[gradient[: len(mean)] * np.sqrt(np.diag(covariance)), gradient[len(mean) :]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_a_fixed_point_is_an_optimum(likelihood, guide, way):
    data = regression(likelihood)
    state = converged(likelihood, guide, way, data)
    design, y = pooled(data)
    size = design.shape[1]
    mean, covariance = oracle_moments(state.server.posterior)
    objective = LocalObjective(design, y, np.zeros(size), np.eye(size), likelihood, NOISE, 64)
    assert np.abs(slopes(objective, mean, covariance)).max() < 1e-6
    best = global_vi(design, y, likelihood, covariance="diagonal" if guide is None else "full", noise_scale=NOISE)
    sd = np.sqrt(best.covariance if best.covariance.ndim == 1 else np.diag(best.covariance))
    assert np.abs((mean - best.mean) / sd).max() < 1e-6
    np.testing.assert_allclose(covariance, best.covariance, rtol=1e-6, atol=1e-6 * sd.min() ** 2)
    assert state.history[-1].elbo == pytest.approx(best.elbo, abs=1e-8)


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_an_optimum_is_a_fixed_point(likelihood, guide):
    """At the optimum q* the factors t_m = exp(∇_μ E_q*[log p(y_m | θ)]·T) multiply to q* / p, and no visit moves them.

    ∇_μ comes from the oracle's moments: precision -Σ x x' E[log p''] (its diagonal under mean field) and so on.
    """
    data = regression(likelihood)
    covariance = "diagonal" if guide is None else "full"
    best = global_vi(*pooled(data), likelihood, covariance=covariance, noise_scale=NOISE)
    plan, state = begin(MODELS[likelihood], data, guide=guide, solver=SOLVER, damping=1.0)
    family = state.server.prior.family
    sites = [site_parameters(client, best.mean, best.covariance, likelihood) for client in designs(data)]
    factors = [
        Factor(family, library_natural(family, h, precision), torch.zeros(()).double()) for h, precision in sites
    ]
    optimum = library_natural(family, *best.natural)
    total = state.server.prior.natural + sum(factor.natural for factor in factors)
    assert torch.allclose(total, optimum, atol=1e-6)
    posterior = Posterior(family, total, state.server.posterior.coordinates)
    server = state.server._replace(posterior=posterior)
    clients = {
        name: client._replace(factor=factor, visits=1)
        for (name, client), factor in zip(state.clients.items(), factors, strict=True)
    }
    state = state._replace(server=server, clients=clients)
    for name, client in clients.items():
        _, update, info = step(
            client, state.problem.clients[name], posterior, setting(server, len(data)), plan.algorithm.cavity,
            plan.solver, 1.0,
        )  # fmt: skip
        assert update is not None, info.rejected
        assert torch.allclose(update.delta.natural, torch.zeros_like(total), atol=1e-5)
    assert play_round(plan, state).history[-1].max_shift < 1e-5


@pytest.mark.parametrize(
    ("schedule", "damping"),
    [("synchronous", 0.5), (Asynchronous(latency=[1.0, 0.3, 2.0]), 0.6), (Sequential(order="shuffled", seed=1), 1.0)],
)
def test_the_schedule_makes_no_difference_to_the_fixed_point(schedule, damping):
    """Three clients, unequal latencies, mean field: damped synchronous, asynchronous and shuffled runs end alike."""
    data = regression("poisson", sizes=(12, 7, 20), features=2)
    for state in play(MODELS["poisson"], data, 60, schedule=schedule, damping=damping):
        if state.history[-1].max_shift < 1e-6:
            break
    assert state.history[-1].elbo == pytest.approx(global_vi(*pooled(data), "poisson").elbo, abs=1e-8)
