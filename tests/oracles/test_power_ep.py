"""Power EP's references against closed forms, other algorithms, each other and variational inference."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from oracles import global_vi, linear_regression
from oracles.federated import add, moments_of, times
from oracles.power_ep import gaussian_prior, grouped_power_ep, power_ep
from oracles.stochastic_power_ep import stochastic_power_ep
from oracles.tilted import log_likelihood, project_rows, tilted_moments

RESPONSES = ["bernoulli", "probit", "poisson", "gaussian"]
COVARIANCES = ["diagonal", "full"]


def regression(likelihood, rows=30, size=3, seed=0):
    rng = np.random.default_rng(seed)
    design = np.c_[np.ones(rows), rng.normal(size=(rows, size - 1)) + 0.4 * rng.normal(size=(rows, 1))]
    eta = design @ rng.normal(scale=0.7, size=size)
    y = {
        "bernoulli": rng.random(rows) < 1 / (1 + np.exp(-eta)),
        "probit": rng.random(rows) < stats.norm.cdf(eta),
        "poisson": rng.poisson(np.exp(eta)),
        "gaussian": eta + 0.8 * rng.normal(size=rows),
    }[likelihood]
    return design, y.astype(float)


def singles(design, y):
    return [(design[i : i + 1], y[i : i + 1]) for i in range(len(y))]


def probit_moments(y, a, v):
    """Rasmussen and Williams (2006), equations 3.82 to 3.84."""
    sign = 2 * y - 1
    z = sign * a / np.sqrt(1 + v)
    ratio = stats.norm.pdf(z) / stats.norm.cdf(z)
    mean = a + sign * v * ratio / np.sqrt(1 + v)
    return stats.norm.logcdf(z), mean, v - v**2 * ratio / (1 + v) * (z + ratio)


def test_probit_moments_are_the_closed_form():
    rng = np.random.default_rng(0)
    y, a, v = rng.integers(0, 2, 50).astype(float), 2 * rng.normal(size=50), rng.gamma(2.0, size=50)
    for got, want in zip(tilted_moments(y, a, v, 1.0, "probit"), probit_moments(y, a, v), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-11)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("likelihood", RESPONSES)
def test_moments_by_adaptive_integration(likelihood, alpha):
    """The last row's likelihood is far narrower than its cavity."""
    y, a, v = np.array([1.0, 0.0, 1.0]), np.array([-0.3, 1.7, -6.0]), np.array([0.4, 2.0, 9.0])
    if likelihood in ("poisson", "gaussian"):
        y[2] = 90.0 if likelihood == "poisson" else 9.0
    log_z, mean, variance = tilted_moments(y, a, v, alpha, likelihood, 0.2)
    for i in range(3):

        def density(eta, power, i=i):
            logs = stats.norm.logpdf(eta, a[i], np.sqrt(v[i])) + alpha * log_likelihood(y[i], eta, likelihood, 0.2)
            return (eta - mean[i]) ** power * np.exp(logs - log_z[i])

        edges = mean[i] + np.sqrt(variance[i]) * np.array([-20, -5, 0, 5, 20])
        for power, want in ((0, 1), (1, 0), (2, variance[i])):
            found = sum(
                integrate.quad(density, low, high, args=(power,), epsabs=1e-13)[0] for low, high in pairwise(edges)
            )
            assert found == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_a_row_projects_the_same_on_a_line_and_on_a_grid(covariance):
    """A group of a row and a row of zeros, which is flat, goes by the grid of both coefficients."""
    cavity = (np.array([0.3, -0.2]), np.array([1.0, 2.0]))
    if covariance == "full":
        cavity = (cavity[0], np.array([[1.0, 0.4], [0.4, 2.0]]))
    x, y = np.array([[1.0, -0.7]]), np.array([1.0])
    line = project_rows(x, y, cavity, 0.6, "bernoulli")
    grid = project_rows(np.vstack([x, 0 * x]), np.r_[y, 1.0], cavity, 0.6, "bernoulli")
    assert grid[0] == pytest.approx(line[0] - 0.6 * np.log(2), abs=1e-10)
    for got, want in zip(grid[1], line[1], strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)


def test_ep_for_probit_is_the_sequential_textbook_algorithm():
    """Rasmussen and Williams (2006), algorithm 3.5, with their evidence (equation 3.65), in weight space."""
    design, y = regression("probit")
    tau, h, precision, shift = np.zeros(30), np.zeros(30), np.eye(3), np.zeros(3)
    for _ in range(100):
        for i, x in enumerate(design):
            v = x @ np.linalg.solve(precision, x)
            a = x @ np.linalg.solve(precision, shift)
            cavity_v = 1 / (1 / v - tau[i])
            _, mean, variance = probit_moments(y[i], cavity_v * (a / v - h[i]), cavity_v)
            new_tau, new_h = 1 / variance - 1 / cavity_v, mean / variance - (a / v - h[i])
            precision = precision + (new_tau - tau[i]) * np.outer(x, x)
            shift = shift + (new_h - h[i]) * x
            tau[i], h[i] = new_tau, new_h
    end = power_ep(design, y, 1.0, "probit")
    np.testing.assert_allclose(end.posterior[0], shift, atol=1e-7)
    np.testing.assert_allclose(end.posterior[1], precision, atol=1e-7)
    kernel = design @ design.T  # of the 30 predictors
    v = ((design @ np.linalg.inv(precision)) * design).sum(1)
    a = design @ np.linalg.solve(precision, shift)
    cavity_v = 1 / (1 / v - tau)
    cavity_a, site = cavity_v * (a / v - h), h / tau
    evidence = stats.multivariate_normal.logpdf(site, np.zeros(30), kernel + np.diag(1 / tau))
    evidence += stats.norm.logcdf((2 * y - 1) * cavity_a / np.sqrt(1 + cavity_v)).sum()
    evidence += 0.5 * (np.log(2 * np.pi * (cavity_v + 1 / tau)) + (cavity_a - site) ** 2 / (cavity_v + 1 / tau)).sum()
    assert end.log_evidence == pytest.approx(evidence, abs=1e-7)


@pytest.mark.parametrize("alpha", [0.01, 0.5, 1.0])
def test_any_power_is_exact_for_linear_regression(alpha):
    design, y = regression("gaussian")
    mean, covariance, evidence = linear_regression(design, y, 0.8, 0.3, 2.0)
    end = power_ep(design, y, alpha, "gaussian", 0.3, 2.0, noise_scale=0.8)
    np.testing.assert_allclose(moments_of(end.posterior)[0], mean, atol=1e-7)
    np.testing.assert_allclose(moments_of(end.posterior)[1], covariance, atol=1e-7)
    assert end.log_evidence == pytest.approx(evidence, abs=1e-6)
    clients = [(design[:, :2][k::3], y[k::3]) for k in range(3)]
    mean, covariance, evidence = linear_regression(design[:, :2], y, 0.8, 0.3, 2.0)
    end = grouped_power_ep(clients, alpha, "gaussian", 0.3, 2.0, noise_scale=0.8)
    np.testing.assert_allclose(moments_of(end.posterior)[0], mean, atol=1e-7)
    assert end.log_evidence == pytest.approx(evidence, abs=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "gaussian"])
def test_a_small_power_is_variational_inference(likelihood, covariance):
    """The distance shrinks with α, so that twice the half power minus the whole one is nearer still."""
    design, y = regression(likelihood)
    best = global_vi(design, y, likelihood, covariance=covariance, noise_scale=0.8)
    ends = [power_ep(design, y, a, likelihood, covariance=covariance, noise_scale=0.8) for a in (2e-3, 1e-3)]
    near = add(times(ends[1].posterior, 2.0), ends[0].posterior, -1)
    for part in (0, 1):
        scale = np.abs(best.natural[part]).max()
        assert np.abs(ends[1].posterior[part] - best.natural[part]).max() < 1e-3 * scale
        assert np.abs(near[part] - best.natural[part]).max() < 1e-6 * scale
    assert 2 * ends[1].log_evidence - ends[0].log_evidence == pytest.approx(best.elbo, abs=1e-4)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_power_1e_4_is_as_near_as_its_size(covariance):
    design, y = regression("bernoulli")
    best = global_vi(design, y, covariance=covariance)
    end = power_ep(design, y, 1e-4, covariance=covariance)
    for part in (0, 1):
        np.testing.assert_allclose(end.posterior[part], best.natural[part], rtol=1e-3, atol=1e-3)
    assert end.log_evidence == pytest.approx(best.elbo, abs=1e-3)


@pytest.mark.parametrize("alpha", [0.4, 1.0])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_groups_of_one_row_are_rows(covariance, alpha):
    design, y = regression("poisson", rows=12)
    rows = power_ep(design, y, alpha, "poisson", covariance=covariance)
    groups = grouped_power_ep(singles(design, y), alpha, "poisson", covariance=covariance)
    for part in (0, 1):
        np.testing.assert_allclose(groups.posterior[part], rows.posterior[part], atol=1e-7)
    assert groups.log_evidence == pytest.approx(rows.log_evidence, abs=1e-7)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_one_group_and_power_one_are_the_exact_moments(covariance):
    design, y = regression("bernoulli", size=2)
    exact = power_ep(design, y, 1.0)
    end = grouped_power_ep([(design, y)], 1.0, covariance=covariance, damping=1.0)
    grid = np.linspace(-6, 6, 601)
    theta = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    logs = log_likelihood(y, theta @ design.T, "bernoulli").sum(-1) + stats.norm.logpdf(theta).sum(-1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = (weights[..., None] * theta).sum((0, 1))
    second = np.einsum("ab,abi,abj->ij", weights, theta - mean, theta - mean)
    np.testing.assert_allclose(moments_of(end.posterior)[0], mean, atol=1e-8)
    wanted = np.diag(second) if covariance == "diagonal" else second
    np.testing.assert_allclose(moments_of(end.posterior)[1], wanted, atol=1e-8)
    assert end.log_evidence == pytest.approx(exact.log_evidence, abs=0.02)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_averaged_ep_with_a_small_power_is_variational_inference(covariance):
    design, y = regression("bernoulli", rows=15)
    best = global_vi(design, y, covariance=covariance)
    ends = [
        stochastic_power_ep(singles(design, y), a, covariance=covariance, averaged=True).posterior for a in (2e-3, 1e-3)
    ]
    near = add(times(ends[1], 2.0), ends[0], -1)
    for part in (0, 1):
        np.testing.assert_allclose(near[part], best.natural[part], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_stochastic_ep_with_identical_clients_is_ep(alpha):
    """Then the average factor is everybody's own; groups of two rows."""
    design, y = regression("bernoulli", rows=2, size=2)
    clients = [(design, y)] * 3
    own = grouped_power_ep(clients, alpha)
    for averaged in (False, True):
        end = stochastic_power_ep(clients, alpha, averaged=averaged)
        for part in (0, 1):
            np.testing.assert_allclose(end.posterior[part], own.posterior[part], atol=1e-6)
            np.testing.assert_allclose(end.factor[part], own.factors[0][part], atol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_small_steps_of_stochastic_ep_lead_to_averaged_ep(covariance):
    """The distance of the cyclic version's limit is proportional to the step."""
    design, y = regression("bernoulli", rows=6)
    clients = singles(design, y)
    target = stochastic_power_ep(clients, 0.5, covariance=covariance, averaged=True)
    prior = gaussian_prior(3, 0.0, 1.0, covariance)
    np.testing.assert_allclose(add(prior, times(target.factor, 6))[1], target.posterior[1], atol=1e-7)
    ends = [stochastic_power_ep(clients, 0.5, covariance=covariance, step=s).posterior for s in (0.02, 0.01, 0.005)]
    distance = [np.abs(end[0] - target.posterior[0]).max() for end in ends]
    assert distance[2] < 0.02
    assert distance[0] / distance[1] == pytest.approx(2, rel=0.1)
    assert distance[1] / distance[2] == pytest.approx(2, rel=0.1)


def test_too_many_coefficients_for_a_grid():
    design, y = regression("bernoulli")
    with pytest.raises(ValueError, match="grid over 3 coefficients"):
        grouped_power_ep([(design, y)], 1.0)
