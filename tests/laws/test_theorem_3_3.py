"""Theorem 3.3: one damped fixed-point step at every client, synchronously, is one of global VI.

The fixed-point equation of F_m is η = η_cav + n_m(η) with n_m = ∇_μ E_q[log p(y_m | θ)], and its damped iteration, a
natural-gradient step of size β, moves the factor by Δ_m = β (η_cav + n_m - η_q) = β (n_m - η_m). The server's sum is

    η_q + Σ_m ρ Δ_m = (1 - ρβ) η_q + ρβ (η_p + Σ_m n_m(η_q)),

the same iteration of global VI with the damping ρβ: the local and the server's damping are one, and the number of
clients does not enter. In a linear-Gaussian model with full covariance n_m is constant, and ρβ = 1 is exact inference.

n_m comes from the oracle's row moments: E[∇log p] - E[∇²log p] m and -E[∇²log p], whose diagonal mean field keeps.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from laws.federations import (
    MODELS,
    NOISE,
    designs,
    last,
    library_natural,
    oracle_moments,
    oracle_natural,
    play,
    pooled,
    regression,
    site_parameters,
)  # fmt: skip
from oracles import global_vi, linear_regression

from pvi.solvers import NaturalGradient, SolverInfo

ROUNDS = 8


def moments_of(h, precision):
    if precision.ndim == 1:
        return h / precision, 1 / precision
    covariance = np.linalg.inv(precision)
    return covariance @ h, covariance


def iteration(data, likelihood, full, rate, steps=ROUNDS):
    """(h, precision) after each damped fixed-point step of global VI from the prior N(0, I), in numpy."""
    rows = pooled(data)
    size = rows[0].shape[1]
    prior = np.zeros(size), np.eye(size) if full else np.ones(size)
    h, precision = prior
    for _ in range(steps):
        site = site_parameters(rows, *moments_of(h, precision), likelihood)
        h = (1 - rate) * h + rate * (prior[0] + site[0])
        precision = (1 - rate) * precision + rate * (prior[1] + site[1])
        yield h, precision


@dataclass(frozen=True)
class FixedPointSteps:
    """The damped iteration with the oracle's moments."""

    likelihood: str
    rate: float
    steps: int = 1
    name: str = "fixed-point steps"

    def solve(self, problem, cavity, start, seed):
        (client,) = designs([problem.batch.args])
        rest, eta = oracle_natural(problem.family, cavity), oracle_natural(problem.family, start)
        for _ in range(self.steps):
            site = site_parameters(client, *moments_of(*eta), self.likelihood)
            eta = tuple(
                (1 - self.rate) * old + self.rate * (own + new) for old, own, new in zip(eta, rest, site, strict=True)
            )
        return library_natural(problem.family, *eta), SolverInfo(self.steps, float("nan"), False, "")


def local_solver(kind, likelihood, rate):
    """The library's, or this file's, which shares nothing with it."""
    if kind == "library":
        return NaturalGradient(steps=1, step_size=rate, exact=True)
    return FixedPointSteps(likelihood, rate)


def close(state, expected, tolerance=1e-8):
    posterior = state.server.posterior
    found = oracle_natural(posterior.family, posterior.natural)
    return all(
        np.allclose(one, other, rtol=tolerance, atol=tolerance) for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("kind", ["library", "own"])
@pytest.mark.parametrize("damping", [1.0, 0.5])
@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_synchronous_steps_are_global_steps(likelihood, guide, damping, kind):
    """Local steps of size β = 0.2 / ρ, damped by ρ, are global steps of size 0.2, in every round."""
    data, rate = regression(likelihood), 0.2
    solver = local_solver(kind, likelihood, rate / damping)
    states = list(play(MODELS[likelihood], data, ROUNDS, guide=guide, damping=damping, solver=solver))
    assert all(state.history[-1].step_fraction == 1 and not state.history[-1].rejected for state in states)
    for state, expected in zip(states, iteration(data, likelihood, guide == "full", rate), strict=True):
        assert close(state, expected)


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_the_algorithm_global_vi_takes_the_same_steps(likelihood, guide):
    data = regression(likelihood)
    solver = NaturalGradient(steps=1, step_size=0.2, exact=True)
    federated = play(MODELS[likelihood], data, ROUNDS, guide=guide, damping=1.0, solver=solver)
    alone = play(MODELS[likelihood], data, ROUNDS, guide=guide, algorithm="global-vi", solver=solver)
    for one, other in zip(federated, alone, strict=True):
        expected = other.server.posterior.natural
        assert torch.allclose(one.server.posterior.natural, expected, rtol=1e-9, atol=1e-9)
        assert one.history[-1].elbo == pytest.approx(other.history[-1].elbo, abs=1e-8)


def test_its_fixed_point_is_the_optimum():
    """Iterated, the steps end where global VI does."""
    data = regression("bernoulli")
    state = last(play(MODELS["bernoulli"], data, 60, damping=1.0, solver=FixedPointSteps("bernoulli", 0.4)))
    best = global_vi(*pooled(data), "bernoulli")
    mean, covariance = oracle_moments(state.server.posterior)
    assert mean == pytest.approx(best.mean, abs=1e-6)
    assert covariance == pytest.approx(best.covariance, abs=1e-6)


def test_an_undamped_step_of_a_conjugate_model_is_exact():
    data = regression("gaussian")
    mean, covariance, evidence = linear_regression(*pooled(data), noise_scale=NOISE)
    solver = FixedPointSteps("gaussian", 1.0)
    (state,) = play(MODELS["gaussian"], data, 1, guide="full", damping=1.0, solver=solver)
    found = oracle_moments(state.server.posterior)
    assert found[0] == pytest.approx(mean, abs=1e-8)
    assert found[1] == pytest.approx(covariance, abs=1e-8)
    assert state.history[-1].elbo == pytest.approx(evidence, abs=1e-8)


def test_more_local_steps_are_another_algorithm():
    data = regression("bernoulli")
    solver = FixedPointSteps("bernoulli", 0.2, steps=2)
    (state,) = play(MODELS["bernoulli"], data, 1, damping=1.0, solver=solver)
    *_, expected = iteration(data, "bernoulli", False, 0.2, steps=2)
    assert not close(state, expected, tolerance=1e-2)
