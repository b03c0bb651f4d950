"""Predictions of generalised linear models without draws, against scipy's quad, closed forms and many draws."""

import itertools
import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit
from small_private import by_row, mixed
from small_results import constrained, logistic, regression_data
from toy_programs import F64, normal

import pvi
from pvi.exact_prediction import NotExact

X = torch.cat(
    [normal(6, 3, seed=5), 30 * normal(2, 3, seed=6), -30 * normal(2, 3, seed=6), torch.zeros(1, 3, dtype=F64)]
)
"""Ordinary rows, rows of which the model is very sure or very unsure, and one that says nothing."""


def moments(result, x):
    """Mean and standard deviation of x · weights + bias, from the joint mean and covariance of q."""
    family, natural = result.posterior.family, result.posterior.natural
    size = sum(member.size for member in family.members)
    covariance = torch.linalg.inv(family.precision_matrix(natural))
    design = torch.cat([x, torch.ones(len(x), 1, dtype=F64)], 1)[:, :size]
    variance = torch.einsum("nd,de,ne->n", design, covariance, design)
    return (design @ family.location(natural)).numpy(), variance.sqrt().numpy()


def by_quad(log_g, loc, scale):
    """log E[g(f)] by scipy's quad, piece by piece where there is anything within 400 standard deviations."""
    z = np.linspace(-400, 400, 40_001)
    with np.errstate(over="ignore"):
        heights = log_g(loc + scale * z) - z**2 / 2
    peak, inside = heights.max(), np.flatnonzero(heights > heights.max() - 45)
    edges = z[[inside[0] - 1, *inside[:: max(1, len(inside) // 40)], inside[-1], inside[-1] + 1]]
    pieces = [
        integrate.quad(lambda z: np.exp(log_g(loc + scale * z) - z**2 / 2 - peak), a, b, epsabs=0, epsrel=1e-10)[0]
        for a, b in itertools.pairwise(edges)
        if b > a
    ]
    return peak + math.log(math.fsum(pieces) / math.sqrt(2 * math.pi))


def every(log_g, result, x, y):
    parts = zip(*moments(result, x), y.numpy(), strict=True)
    return np.array([by_quad(lambda f, y=y: log_g(f, y), loc, scale) for loc, scale, y in parts])


@pytest.mark.parametrize("guide", [None, "full"])
def test_logistic_regression(guide):
    result = logistic(guide)
    for y in (torch.zeros(len(X), dtype=F64), torch.ones(len(X), dtype=F64)):
        found = result.log_predictive_density(X, y)["y"]
        expected = every(lambda f, y: -np.logaddexp(0, np.where(y > 0, -f, f)), result, X, y)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert moments(result, X)[0].max() > 40
    mean = result.predict_mean(X)["y"]
    torch.testing.assert_close(mean, found.exp(), rtol=1e-9, atol=0)
    assert torch.equal(mean, result.predict_mean(X, y)["y"])
    assert 0 < mean.min() < 1e-3


def test_poisson_regression_with_exposures():
    generator = torch.Generator().manual_seed(0)
    counts = {
        name: {
            "x": x,
            "y": torch.poisson((x[:, 0] + 1).exp(), generator=generator),
            "exposure": torch.full_like(y, 2.0),
        }
        for name, (x, y) in regression_data().items()
    }
    result = pvi.fit("poisson_regression", counts, "full", rounds=3, damping=0.5)
    x, y, exposure = X[:6], torch.tensor([0.0, 1.0, 3.0, 40.0, 900.0, 2.0], dtype=F64), torch.rand(6, dtype=F64) + 0.5
    loc, scale = moments(result, x)
    found = result.log_predictive_density(x, y, exposure, method="quadrature")["y"]
    for place, value in enumerate(found.tolist()):
        count, offset = y[place].item(), exposure[place].log().item()
        expected = by_quad(
            lambda f: count * (f + offset) - np.exp(f + offset) - math.lgamma(count + 1),  # noqa: B023
            loc[place],
            scale[place],
        )
        assert abs(value - expected) < 1e-8
    mean = result.predict_mean(x, exposure=exposure, method="quadrature")["y"]
    np.testing.assert_allclose(mean, exposure.numpy() * np.exp(loc + scale**2 / 2), rtol=1e-9)


def test_linear_regression_in_closed_form():
    result = pvi.fit("linear_regression", regression_data(), "full", rounds=3, damping=0.5)
    y = normal(len(X), seed=9)
    loc, scale = moments(result, X)
    found = result.log_predictive_density(X, y, noise_scale=0.01, method="quadrature")["y"]
    np.testing.assert_allclose(found, stats.norm.logpdf(y, loc, np.hypot(scale, 0.01)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.predict_mean(X, method="quadrature")["y"], loc, rtol=1e-9, atol=1e-9)


def student(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.StudentT(3.0, x @ weights, 0.3), obs=y)


def shares(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Binomial(7, logits=x @ weights), obs=y)


def log_student(f, y):
    return stats.t.logpdf(0, 3.0, 0, 0.3) - 2 * np.log1p((f - y) ** 2 / 0.27)


def log_binomial(f, y):
    return math.log(math.comb(7, int(y))) - y * np.logaddexp(0, -f) - (7 - y) * np.logaddexp(0, f)


@pytest.mark.parametrize(
    ("model", "log_p", "mean"),
    [
        (student, log_student, lambda f: f),
        (shares, log_binomial, lambda f: 7 * expit(f)),
    ],
)
def test_other_outcomes(model, log_p, mean):
    x = X[:6]
    y = (torch.tensor([0.1, -8.0, 0.0, 5.0, 2.0, -1.0]) if model is student else torch.arange(6) + 1).to(F64)
    result = pvi.fit(model, {"a": (x, y), "b": (x + 1, y)}, rounds=2, damping=0.5)
    found = result.log_predictive_density(x, y, method="quadrature")["y"]
    np.testing.assert_allclose(found, every(log_p, result, x, y), rtol=0, atol=1e-8)
    loc, scale = moments(result, x)
    z = np.linspace(-12, 12, 20_001)
    weights = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    expected = [mean(m + s * z) @ weights for m, s in zip(loc, scale, strict=True)]
    np.testing.assert_allclose(result.predict_mean(x, method="quadrature")["y"], expected, rtol=0, atol=1e-8)


def test_a_client_s_own_latents_count():
    result, (x, y) = mixed("full"), regression_data(seed=1)["south"]
    found = result.log_predictive_density(x, y, client="south", method="quadrature")["y"]
    drawn = result.log_likelihood(x, y, num_samples=20_000, client="south")["y"].exp()
    error = (found.exp() - drawn.mean(0)).abs() / (drawn.std(0) / math.sqrt(20_000))
    assert error.max() < 5
    with pytest.raises(NotExact, match="from their prior"):
        result.log_predictive_density(x, y, method="quadrature")
    new = [result.log_predictive_density(x, y, method=method)["y"] for method in ("auto", "draws")]
    assert torch.equal(*new)


def test_single_precision_is_computed_in_double():
    result, (x, y) = logistic(), regression_data(seed=1)["south"]
    data = {name: (a.float(), b.float()) for name, (a, b) in regression_data().items()}
    short = pvi.fit("logistic_regression", data, damping=0.5, rounds=4)
    found = short.log_predictive_density(x.float(), y.float(), method="quadrature")["y"]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), result.log_predictive_density(x, y)["y"], rtol=0, atol=1e-4)


def joint(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    return pyro.sample("y", dist.Bernoulli(logits=x @ weights).to_event(1), obs=y)


def bent(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Bernoulli(logits=(x @ weights).square()), obs=y)


def pair(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)
        pyro.sample("w", dist.Normal(x @ weights, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "reason"), [(joint, "one joint outcome"), (bent, "not affine"), (pair, r"several sites \(y, w\)")]
)
def test_where_draws_are_needed(model, reason):
    result = pvi.fit(model, regression_data(), rounds=1, damping=0.5, solver=pvi.solvers.SVI(steps=10))
    x, y = regression_data(seed=1)["south"]
    with pytest.raises(NotExact, match=reason):
        result.log_predictive_density(x, y, method="quadrature")
    auto, drawn = (result.log_predictive_density(x, y, method=method, seed=3) for method in ("auto", "draws"))
    assert torch.equal(auto["y"], drawn["y"])
    if model is not joint:
        auto, drawn = (result.predict_mean(x, method=method, seed=3) for method in ("auto", "draws"))
        assert torch.equal(auto["y"], drawn["y"])


def test_models_that_are_no_regressions():
    x, y = regression_data(seed=1)["south"]
    with pytest.raises(NotExact, match="another way than through the predictor"):
        constrained().log_predictive_density(x, y, method="quadrature")
    with pytest.raises(NotExact, match="from their prior"):
        by_row().log_predictive_density(y=torch.ones(5, dtype=F64), client="a", method="quadrature")
    with pytest.raises(NotExact, match="cannot be evaluated here: Shape mismatch"):
        by_row().log_predictive_density(y=torch.ones(2, dtype=F64), client="a", method="quadrature")


def test_wrong_arguments():
    result, (x, y) = logistic(), regression_data(seed=1)["south"]
    with pytest.raises(ValueError, match="method must be one of"):
        result.predict_mean(x, method="exact")
    with pytest.raises(ValueError, match="observes nothing"):
        result.log_predictive_density(x, method="quadrature")
    with pytest.raises(ValueError, match="no observations"):
        result.log_predictive_density(x)
    with pytest.raises(ValueError, match="failed on inputs of shapes"):
        result.predict_mean(x[:, :2])
    assert result.predict_mean(x)["y"].shape == y.shape
