"""Mixed models' references: marginal likelihoods, conditional independence, perturbations, and EP."""

import numpy as np
import pytest
from datasets import heart_disease
from scipy import stats

from oracles import elbo, global_vi, power_ep
from oracles.mixed import mixed_design, mixed_precision, mixed_vi

COVARIANCES = ["diagonal", "blocks", "full"]


def hospitals(likelihood, sizes=(12, 7, 20), seed=0):
    rng = np.random.default_rng(seed)
    clients = []
    for n in sizes:
        design = np.c_[np.ones(n), rng.normal(size=(n, 2)) + 0.5 * rng.normal(size=2)]
        eta = design @ np.array([0.3, -0.8, 0.5]) + rng.normal()
        noise = {
            "gaussian": eta + 0.7 * rng.normal(size=n),
            "bernoulli": rng.random(n) < 1 / (1 + np.exp(-eta)),
            "poisson": rng.poisson(np.exp(eta)),
        }
        clients.append((design, noise[likelihood].astype(float)))
    return clients


def test_the_design_has_a_column_a_client():
    clients = hospitals("bernoulli")
    design, y = mixed_design(clients)
    assert design.shape == (39, 6)
    np.testing.assert_array_equal(design[:, :3], np.concatenate([x for x, _ in clients]))
    np.testing.assert_array_equal(y, np.concatenate([y for _, y in clients]))
    np.testing.assert_array_equal(design[:, 3:].sum(0), [12, 7, 20])
    assert (design[:, 3:].argmax(1) == np.repeat([0, 1, 2], [12, 7, 20])).all()
    precision = mixed_precision(3, 3, 0.5, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(precision, np.diag([1.0, 2.0, 3.0, 4.0, 4.0, 4.0]))


def test_gaussian_rows_have_the_marginal_covariance_of_random_intercepts():
    clients = hospitals("gaussian")
    best = mixed_vi(clients, 0.6, "gaussian", prior_mean=0.2, prior_precision=0.5, noise_scale=0.7)
    shared, y = np.concatenate([x for x, _ in clients]), np.concatenate([y for _, y in clients])
    place = np.repeat([0, 1, 2], [12, 7, 20])
    marginal = 2 * shared @ shared.T + 0.36 * (place[:, None] == place) + 0.49 * np.eye(39)
    evidence = stats.multivariate_normal.logpdf(y, shared @ np.full(3, 0.2), marginal)
    assert best.elbo == pytest.approx(evidence, abs=1e-8)
    gain = 0.36 * (place[:, None] == np.arange(3)).T
    intercepts = gain @ np.linalg.solve(marginal, y - shared @ np.full(3, 0.2))
    np.testing.assert_allclose(best.mean[3:], intercepts, atol=1e-8)
    bounds = [mixed_vi(clients, 0.6, "gaussian", c, 0.2, 0.5, 0.7).elbo for c in COVARIANCES]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_intercepts_are_independent_given_the_shared(likelihood):
    best = mixed_vi(hospitals(likelihood), 0.8, likelihood)
    own = np.linalg.inv(best.covariance)[3:, 3:]
    np.testing.assert_allclose(own, np.diag(np.diag(own)), atol=1e-6)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "gaussian"])
def test_blocks_are_a_maximum_between_mean_field_and_full(likelihood):
    clients = hospitals(likelihood)
    best = {c: mixed_vi(clients, 0.8, likelihood, c) for c in COVARIANCES}
    assert best["diagonal"].elbo < best["blocks"].elbo < best["full"].elbo
    blocks = best["blocks"].covariance
    np.testing.assert_array_equal(blocks[3:, :3], 0)
    np.testing.assert_array_equal(blocks[3:, 3:], np.diag(np.diag(blocks[3:, 3:])))
    design, y = mixed_design(clients)
    options = {"likelihood": likelihood, "prior_precision": mixed_precision(3, 3, 0.8)}
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-1):
        for _ in range(20):
            root = np.eye(6)
            root[:3, :3] += scale * rng.normal(size=(3, 3))
            root[3:, 3:] = np.diag(np.exp(scale * rng.normal(size=3)))
            other = root @ blocks @ root.T
            assert (
                elbo(design, y, best["blocks"].mean + scale * rng.normal(size=6), other, **options)
                < best["blocks"].elbo
            )


def test_a_small_tau_is_the_model_without_intercepts_of_clients():
    clients = hospitals("bernoulli")
    pooled = global_vi(*(np.concatenate([client[part] for client in clients]) for part in (0, 1)), covariance="full")
    best = mixed_vi(clients, 1e-4)
    assert best.elbo == pytest.approx(pooled.elbo, abs=1e-5)
    np.testing.assert_allclose(best.mean[:3], pooled.mean, atol=1e-6)


def test_heart_disease_with_an_intercept_a_hospital():
    clients = list(heart_disease().values())
    bounds = [mixed_vi(clients, 1.0, covariance=c).elbo for c in COVARIANCES]
    assert bounds == sorted(bounds)
    design, y = mixed_design(clients)
    ep = power_ep(design, y, 1.0, prior_precision=mixed_precision(29, 4, 1.0), damping=1.0)
    assert 0 < ep.log_evidence - bounds[-1] < 0.5
