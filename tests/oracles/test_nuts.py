"""NUTS' references: log densities against plain Pyro programs, draws against identities and expectation propagation."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from scipy import integrate, stats

from oracles import nuts, power_ep
from oracles.mixed import mixed_precision


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


def one():
    return torch.tensor(1.0, dtype=torch.float64)


def scale_prior(prior):
    return dist.HalfNormal(one()) if prior == "half_normal" else dist.LogNormal(zeros(()), one())


def rows(logits, y):
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def laplace_program(scale):
    x, y, _ = nuts.hospitals()
    weights = pyro.sample("weights", dist.Laplace(zeros(28), scale).to_event(1))
    rows(x @ weights + pyro.sample("bias", dist.Normal(zeros(()), 1.0)), y)


def hierarchical_program(prior):
    x, y, _ = nuts.hospitals()
    tau = pyro.sample("tau", scale_prior(prior))
    weights = pyro.sample("weights", dist.Normal(zeros(28), tau).to_event(1))
    rows(x @ weights + pyro.sample("bias", dist.Normal(zeros(()), 1.0)), y)


def mixed_program(tau):
    x, y, place = nuts.hospitals()
    scale = pyro.sample("tau", dist.LogNormal(zeros(()), 1.0)) if tau is None else tau
    weights = pyro.sample("weights", dist.Normal(zeros(28), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(zeros(()), 1.0))
    intercepts = pyro.sample("intercepts", dist.Normal(zeros(4), scale).to_event(1))
    rows(x @ weights + bias + intercepts[place], y)


MODELS = {
    "laplace": (nuts.laplace_potential, laplace_program, 0.3, {}),
    "half normal": (
        nuts.hierarchical_potential,
        hierarchical_program,
        "half_normal",
        {"log_tau": ()},
    ),
    "log normal": (
        nuts.hierarchical_potential,
        hierarchical_program,
        "log_normal",
        {"log_tau": ()},
    ),
    "mixed": (nuts.mixed_potential, mixed_program, 0.7, {"intercepts": (4,)}),
    "mixed latent": (nuts.mixed_potential, mixed_program, None, {"intercepts": (4,), "log_tau": ()}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_log_density_is_the_programs(name):
    """Up to one constant, at ten points in unconstrained space (tau by its logarithm, as Pyro has it)."""
    potential, program, setting, own = MODELS[name]
    _, program_potential, transforms, _ = initialize_model(program, model_args=(setting,))
    if "tau" in transforms:
        assert transforms["tau"].inv(one()) == one().exp()
    generator = torch.Generator().manual_seed(0)
    differences = []
    for _ in range(10):
        shapes = {"weights": (28,), "bias": (), **own}
        point = {k: torch.randn(s, generator=generator, dtype=torch.float64) for k, s in shapes.items()}
        there = {k.removeprefix("log_"): v for k, v in point.items()}
        differences.append(float(potential(point, setting) - program_potential(there)))
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


def test_the_record_of_draws():
    """Errors and r-hat against what independent draws have by theory; the generators' states stay."""
    rng = np.random.default_rng(0)
    reference = nuts.Reference({"a": rng.normal(2.0, 3.0, size=(4, 2500, 2))}, 0)
    assert reference.flat["a"].shape == (10_000, 2)
    # The estimator sums autocorrelations as long as they are positive: too low by a fifth at times.
    np.testing.assert_allclose(reference.ess["a"], 10_000, rtol=0.3)
    np.testing.assert_allclose(reference.r_hat["a"], 1, atol=2e-3)
    np.testing.assert_allclose(reference.mean_error["a"], 0.03, rtol=0.15)
    np.testing.assert_allclose(reference.sd_error["a"], 3 / np.sqrt(20_000), rtol=0.15)
    assert (np.abs(reference.mean["a"] - 2) < 5 * 0.03).all()
    assert (np.abs(reference.sd["a"] - 3) < 5 * 3 / np.sqrt(20_000)).all()
    apart = nuts.Reference({"a": reference.draws["a"] + np.arange(4)[:, None, None]}, 0)
    assert (apart.r_hat["a"] > 1.05).all()
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    found = nuts.sample(lambda p: (p["x"] ** 2).sum() / 8, {"x": (2,)}, 50, 200, 2, 0)
    torch.testing.assert_close(torch.randn(2), expected)
    assert (np.abs(found.mean["x"]) < 5 * found.mean_error["x"]).all()
    assert (np.abs(found.sd["x"] - 2) < 5 * found.sd_error["x"]).all()
    again = nuts.sample(lambda p: (p["x"] ** 2).sum() / 8, {"x": (2,)}, 50, 200, 2, 0)
    np.testing.assert_array_equal(found.draws["x"], again.draws["x"])


def assert_converged(reference):
    assert reference.divergences == 0
    assert max(value.max() for value in reference.r_hat.values()) < 1.02
    assert min(value.min() for value in reference.ess.values()) > 400


def assert_near(reference, site, mean, sd, share):
    """Means and standard deviations within five Monte Carlo errors and a share of the standard deviation."""
    for name, want in (("mean", mean), ("sd", sd)):
        got, error = getattr(reference, name)[site], getattr(reference, f"{name}_error")[site]
        assert (np.abs(got - want) < 5 * error + share * reference.sd[site]).all(), (name, (got - want) / error)


def ep_design(own=False):
    """Columns of weights, bias and, with `own`, of the hospitals' intercepts; outcomes."""
    x, y, place = (part.numpy() for part in nuts.hospitals())
    return np.hstack([x, np.ones((len(y), 1)), *([np.eye(4)[place]] if own else [])]), y


def mixture(log_prior, precision_of, own=False):
    """Means and standard deviations of (coefficients, tau), EP's evidence and moments over a grid of log tau."""
    design, y = ep_design(own)
    grid = np.linspace(-1.75, 2.5, 18) if own else np.linspace(-1.5, 1.0, 26)
    ends = [
        power_ep(design, y, 1.0, prior_precision=precision_of(np.exp(t)), damping=0.5, tolerance=1e-6) for t in grid
    ]
    logs = np.array([end.log_evidence for end in ends]) + log_prior(grid)
    weights = np.exp(logs - logs.max())
    weights /= integrate.trapezoid(weights, grid)
    assert max(weights[0], weights[-1]) < 1e-3 * weights.max()
    covariances = [np.linalg.inv(end.posterior[1]) for end in ends]
    means = np.array([c @ end.posterior[0] for c, end in zip(covariances, ends, strict=True)])
    squares = means**2 + np.array([np.diag(c) for c in covariances])
    values = np.c_[means, np.exp(grid)], np.c_[squares, np.exp(2 * grid)]
    mean, square = (integrate.trapezoid(weights[:, None] * value, grid, axis=0) for value in values)
    return mean, np.sqrt(square - mean**2)


@pytest.mark.slow
def test_laplace_prior():
    """Integration by parts: E ∂U/∂θ = 0, and E θ ∂U/∂θ = 1 for every coefficient, in standard errors."""
    reference = nuts.laplace_prior()
    assert_converged(reference)
    x, y, _ = (part.numpy() for part in nuts.hospitals())
    weights, bias = reference.draws["weights"], reference.draws["bias"][..., None]
    residual = 1 / (1 + np.exp(-(weights @ x.T + bias))) - y
    slopes = np.concatenate([residual @ x + np.sign(weights) / 0.3, residual.sum(-1, keepdims=True) + bias], axis=-1)
    theta = np.concatenate([weights, bias], axis=-1)
    for draws in (slopes, theta * slopes - 1):
        assert (np.abs(draws.mean((0, 1))) < 5 * nuts.mean_error(draws)).all()


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["half_normal", "log_normal"])
def test_hierarchical_scale(prior):
    """EP is off by far less than a fiftieth of a standard deviation here."""
    reference = nuts.hierarchical_scale(prior)
    assert_converged(reference)
    density = {
        "half_normal": lambda t: stats.halfnorm.logpdf(np.exp(t)) + t,
        "log_normal": stats.norm.logpdf,
    }[prior]
    mean, sd = mixture(density, lambda tau: np.r_[np.full(28, tau**-2), 1.0])
    assert_near(reference, "weights", mean[:28], sd[:28], 0.02)
    assert_near(reference, "bias", mean[28], sd[28], 0.02)
    assert_near(reference, "tau", mean[29], sd[29], 0.02)


@pytest.mark.slow
def test_mixed_effects():
    reference = nuts.mixed_effects(1.0)
    assert_converged(reference)
    design, y = ep_design(own=True)
    end = power_ep(design, y, 1.0, prior_precision=mixed_precision(29, 4, 1.0), damping=1.0)
    covariance = np.linalg.inv(end.posterior[1])
    mean, sd = covariance @ end.posterior[0], np.sqrt(np.diag(covariance))
    assert_near(reference, "weights", mean[:28], sd[:28], 0.02)
    assert_near(reference, "bias", mean[28], sd[28], 0.02)
    assert_near(reference, "intercepts", mean[29:], sd[29:], 0.02)


@pytest.mark.slow
def test_mixed_effects_with_a_latent_scale():
    reference = nuts.mixed_effects(None)
    assert_converged(reference)
    mean, sd = mixture(stats.norm.logpdf, lambda tau: mixed_precision(29, 4, tau), own=True)
    assert_near(reference, "weights", mean[:28], sd[:28], 0.02)
    assert_near(reference, "bias", mean[28], sd[28], 0.02)
    assert_near(reference, "intercepts", mean[29:33], sd[29:33], 0.02)
    assert_near(reference, "tau", mean[33], sd[33], 0.02)
