"""The server's closed form against numerical minimisation, ``torch.distributions`` and numbers by hand."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.distributions import Normal, kl_divergence

from pvi import theory

GENERATOR = np.random.default_rng(0)
MEANS = GENERATOR.normal(size=(5, 4)) * [0.1, 1.0, 3.0, 0.0] + [0.0, 5.0, -2.0, 1.0]
VARIANCES = GENERATOR.gamma(1.0, size=(5, 4)) + 0.01


def test_by_hand():
    mean, variance = theory.optimal_server([[0.0, 1.0], [2.0, 1.0]], [[1.0, 0.5], [3.0, 1.5]])
    assert mean.tolist() == [1.0, 1.0]
    assert variance.tolist() == [(1 + 3) / 2 + 1, 1.0]
    # KL(N(1, 2), N(0, 2)) = ½ (1 - 0)² / 2, twice the same weight.
    assert theory.server_objective([[1.0, 1.0]], [[2.0, 2.0]], [0.0, 0.0], [2.0, 2.0]) == pytest.approx(0.5)


def test_the_objective_is_torch_s():
    mean, variance = np.array([0.3, 4.0, -1.0, 1.0]), np.array([0.5, 2.0, 6.0, 0.1])
    q = Normal(torch.as_tensor(MEANS), torch.as_tensor(VARIANCES).sqrt())
    w = Normal(torch.as_tensor(mean), torch.as_tensor(variance).sqrt())
    expected = kl_divergence(q, w).sum(1).mean().item()
    assert theory.server_objective(MEANS, VARIANCES, mean, variance) == pytest.approx(expected, rel=1e-12)


def test_against_numerical_minimisation():
    size = MEANS.shape[1]

    def objective(point):
        return theory.server_objective(MEANS, VARIANCES, point[:size], np.exp(point[size:]))

    found = minimize(objective, np.zeros(2 * size), method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    mean, variance = theory.optimal_server(MEANS, VARIANCES)
    # Finite differences leave gradients of about 1e-8, and the optimum is flat: half the digits in the point.
    np.testing.assert_allclose(found.x[:size], mean, atol=1e-5)
    np.testing.assert_allclose(np.exp(found.x[size:]), variance, rtol=1e-5)
    assert objective(np.concatenate([mean, np.log(variance)])) <= found.fun + 1e-12


def test_no_other_server_is_better():
    mean, variance = theory.optimal_server(MEANS, VARIANCES)
    best = theory.server_objective(MEANS, VARIANCES, mean, variance)
    for _ in range(50):
        step = 0.01 * GENERATOR.normal(size=(2, MEANS.shape[1]))
        assert theory.server_objective(MEANS, VARIANCES, mean + step[0], variance * np.exp(step[1])) > best


def test_one_client_is_its_own_server_and_clients_alike_are():
    for number in (1, 3):
        means, variances = np.tile(MEANS[0], (number, 1)), np.tile(VARIANCES[0], (number, 1))
        mean, variance = theory.optimal_server(means, variances)
        np.testing.assert_allclose(mean, MEANS[0], rtol=1e-15)
        np.testing.assert_allclose(variance, VARIANCES[0], rtol=1e-12)
        assert theory.server_objective(means, variances, MEANS[0], VARIANCES[0]) == 0.0


@pytest.mark.parametrize(
    ("means", "variances", "message"),
    [
        ([1.0], [1.0], r"one shape \[clients, weights\], got \[1\] and \[1\]"),
        ([[1.0, 2.0]], [[1.0]], r"got \[1, 2\] and \[1, 1\]"),
        (np.zeros((0, 2)), np.zeros((0, 2)), r"got \[0, 2\]"),
        ([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, -0.1]], "client 1's variance of weight 1 .* positive .* -0.1"),
        ([[0.0, np.nan]], [[1.0, 1.0]], "client 0's mean of weight 1 must be finite, got nan"),
    ],
)
def test_no_such_clients(means, variances, message):
    with pytest.raises(ValueError, match=message):
        theory.optimal_server(means, variances)
    with pytest.raises(ValueError, match=message):
        theory.server_objective(means, variances, [0.0, 0.0], [1.0, 1.0])


def test_no_such_server():
    with pytest.raises(ValueError, match=r"the server's mean has shape \[1\], but clients have 4 weights"):
        theory.server_objective(MEANS, VARIANCES, [0.0], np.ones(4))
    with pytest.raises(ValueError, match="the server's variance of weight 2 must be positive"):
        theory.server_objective(MEANS, VARIANCES, np.zeros(4), [1.0, 1.0, 0.0, 1.0])
