"""Priors outside the guide's family: the server refines a factor of its own in their place."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from datasets import heart_disease
from scipy import optimize
from toy_programs import F64

import pvi
from pvi.problem import build_problem


def one_weight(prior):
    def model(x, y):
        weight = pyro.sample("weight", prior(x))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(logits=x * weight), obs=y)

    return model


def data(rows=40):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(rows, generator=generator, dtype=F64)
    return x, (torch.rand(rows, generator=generator, dtype=F64) < torch.sigmoid(1.2 * x)).to(F64)


PRIORS = {
    "Laplace": (lambda x: dist.Laplace(x.new_tensor(0.0), 0.5), lambda w: -np.abs(w) / 0.5 - np.log(1.0)),
    "StudentT": (
        lambda x: dist.StudentT(3.0, x.new_tensor(0.0), 0.5),
        lambda w: dist.StudentT(3.0, 0.0, 0.5).log_prob(torch.as_tensor(w)).numpy(),
    ),
}


@pytest.mark.parametrize("name", PRIORS)
def test_one_weight_has_the_best_gaussian(name):
    """The maximum of the ELBO over mean and log sd, by a dense grid in place of draws."""
    prior, log_prior = PRIORS[name]
    x, y = data()
    z = np.linspace(-8, 8, 4001)
    weights = np.exp(-0.5 * z**2)
    weights /= weights.sum()

    def negative_elbo(point):
        w = point[0] + np.exp(point[1]) * z
        logits = np.outer(x.numpy(), w)
        likelihood = (y.numpy()[:, None] * logits - np.logaddexp(0, logits)).sum(0)
        return -(weights @ (likelihood + log_prior(w)) + point[1] + 0.5 * np.log(2 * np.pi * np.e))

    best = optimize.minimize(negative_elbo, np.array([0.5, -1.0]), method="Nelder-Mead", options={"xatol": 1e-8})
    result = pvi.fit(one_weight(prior), [(x[:15], y[:15]), (x[15:], y[15:])], damping=0.5, rounds=15)
    sd = np.exp(best.x[1])
    assert result.settings["solver"] == "Newton"  # the likelihood is as exact as ever
    # A kink is met by nodes a hundredth of a standard deviation apart, not exactly.
    assert result.posterior.mean["weight"].item() == pytest.approx(best.x[0], abs=1e-3 * sd)
    assert result.posterior.sd["weight"].item() == pytest.approx(sd, rel=1e-3)
    assert result.elbo == pytest.approx(-best.fun, abs=1e-4)
    assert result.history[-1].elbo_standard_error == 0
    assert result.correction is not None


def test_factors_prior_and_correction_add_up(tmp_path):
    x, y = data()
    result = pvi.fit(one_weight(PRIORS["Laplace"][0]), [(x[:15], y[:15]), (x[15:], y[15:])], rounds=3)
    factors = sum(factor.natural for factor in result.factors.values())
    total = result.prior.natural + result.correction.natural + factors
    torch.testing.assert_close(total, result.posterior.natural)
    assert result.history[-1].drift < 1e-10
    result.save(tmp_path)
    again = pvi.load(tmp_path)
    assert torch.equal(again.correction.natural, result.correction.natural)


def test_acceleration_takes_the_servers_factor_along():
    x, y = data()
    clients = [(x[:15], y[:15]), (x[15:], y[15:])]
    model = one_weight(PRIORS["Laplace"][0])
    plain = pvi.fit(model, clients, damping=0.5, rounds=25)
    fast = pvi.fit(model, clients, damping=0.5, rounds=10, acceleration="anderson")
    assert fast.posterior.mean["weight"].item() == pytest.approx(plain.posterior.mean["weight"].item(), abs=1e-4)
    assert fast.history[-1].drift < 1e-10


def test_elements_are_told_from_priors_that_hang_together():
    from pvi.programs.linear_predictor import LinearPredictor, NotAffine
    from pvi.programs.program import log_prior

    def apart(x, y):
        weights = pyro.sample("weights", dist.StudentT(3.0, x.new_zeros(2), 0.5).to_event(1))
        scale = pyro.sample("scale", dist.HalfCauchy(x.new_tensor(1.0)))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights * scale), obs=y)

    x, y = data()
    clients = [(torch.stack([x, x**2], 1), y)]
    problem = build_problem(apart, clients, None, torch.device("cpu"), F64).prior_problem
    assert isinstance(problem.predictor, LinearPredictor)
    assert problem.predictor.smooth
    point = torch.tensor([0.3, -0.7, 0.4], dtype=F64)
    expected = log_prior(problem.program, point, problem.batch)
    torch.testing.assert_close(problem.predictor.log_prob(point).sum(), expected)
    laplace = build_problem(one_weight(PRIORS["Laplace"][0]), [(x, y)], None, torch.device("cpu"), F64).prior_problem
    assert not laplace.predictor.smooth
    together = build_problem(hierarchy, [(x[:, None], y)], None, torch.device("cpu"), F64).prior_problem
    assert isinstance(together.predictor, NotAffine)
    assert "depends on another" in together.predictor.reason or "add up" in together.predictor.reason


def hierarchy(x, y):
    tau = pyro.sample("tau", dist.HalfNormal(x.new_tensor(1.0)))
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), tau).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


def test_one_shared_site_may_be_the_scale_of_another():
    """The server needs one row for shapes at most, and the prior it refines is the model's."""
    x, y = data()
    device = torch.device("cpu")
    problem = build_problem(hierarchy, [(x[:, None], y)], None, device, F64)
    own = problem.prior_problem
    assert own is not None
    assert own.batch.num_rows == 1
    from pvi.programs.program import log_likelihood

    point = torch.tensor([0.3, -0.7, 0.2], dtype=F64)
    values = own.approximation.coordinates.constrain(point)
    expected = (
        dist.HalfNormal(1.0).log_prob(values["tau"])
        + dist.Normal(0.0, values["tau"]).log_prob(values["weights"]).sum()
        + dist.Normal(0.0, 1.0).log_prob(values["bias"])
        + own.approximation.coordinates.log_abs_det_jacobian(point)
    )
    torch.testing.assert_close(log_likelihood(own.program, point, own.batch), expected)


def test_a_hyperparameter_of_a_foreign_prior_is_learned():
    """Laplace scale: at fixed q the best one is E_q|w|, which the last round has reached within a step."""
    from torch.distributions import constraints

    def model(x, y):
        scale = pyro.param("scale", x.new_tensor(1.0), constraint=constraints.positive)
        weights = pyro.sample("weights", dist.Laplace(x.new_zeros(3), scale).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    generator = torch.Generator().manual_seed(5)
    x = torch.randn(90, 3, generator=generator, dtype=F64)
    y = (torch.rand(90, generator=generator, dtype=F64) < torch.sigmoid(x @ torch.tensor([2.0, 0, -1]).double())).to(
        F64
    )
    result = pvi.fit(model, [(x[:40], y[:40]), (x[40:], y[40:])], damping=0.5, rounds=12, learn="all")
    marginal = result.posterior.marginal("weights").base_dist
    folded = 2 * marginal.scale * marginal.log_prob(marginal.loc * 0).exp() * marginal.scale
    expected = folded + marginal.loc * (1 - 2 * marginal.cdf(marginal.loc * 0))  # E|w| of a normal
    assert result.hyperparameters["scale"].item() == pytest.approx(expected.mean().item(), rel=1e-3)


def hospitals():
    return {name: (torch.as_tensor(x), torch.as_tensor(y)) for name, (x, y) in heart_disease(intercept=False).items()}


@pytest.mark.slow
def test_a_laplace_prior_on_heart_disease_agrees_with_nuts():
    from oracles.nuts import laplace_prior

    def model(x, y):
        weights = pyro.sample("weights", dist.Laplace(x.new_zeros(x.shape[1]), 0.3).to_event(1))
        bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)

    result = pvi.fit(model, hospitals(), guide="full", damping=0.4, rounds=25)
    # Posteriors under a Laplace prior are peaked at zero where the data say little: no Gaussian is.
    assert_near(result, laplace_prior(0.3), ("weights", "bias"), off=0.25, ratio=0.8)


@pytest.mark.slow
def test_a_hierarchical_scale_on_heart_disease_agrees_with_nuts():
    from oracles.nuts import hierarchical_scale

    result = pvi.fit(hierarchy, hospitals(), guide="full", damping=0.4, rounds=25)
    assert_near(result, hierarchical_scale("half_normal"), ("weights", "bias", "tau"), off=0.25, ratio=0.8)


def assert_near(result, reference, sites, off, ratio):
    for site in sites:
        mean, sd = torch.as_tensor(reference.mean[site]), torch.as_tensor(reference.sd[site])
        shift = ((result.posterior.mean[site] - mean).abs() / sd).max().item()
        assert shift < off, f"{site}: a mean is {shift:.3f} sd off"
        scale = (result.posterior.sd[site] / sd).min().item()
        assert scale > ratio, f"{site}: an sd is {scale:.3f} of the true one"
