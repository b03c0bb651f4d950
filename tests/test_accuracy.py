"""PVI against exact global VI (an independent quadrature and Newton oracle) and against NUTS, on real tables."""

import numpy as np
import pyro
import pytest
import torch
from datasets import breast_cancer, heart_disease, pooled
from oracles import global_vi
from pyro.infer import MCMC, NUTS

import pvi
from pvi.models import logistic_regression, poisson_regression


def tensors(clients):
    return {name: (torch.as_tensor(x), torch.as_tensor(y)) for name, (x, y) in clients.items()}


def gap(name: str, guide, **options) -> float:
    """Exact global VI's ELBO minus the run's, nats."""
    load = {"heart disease": heart_disease, "breast cancer": breast_cancer}[name]
    covariance = "diagonal" if guide is None else "full"
    optimum = global_vi(*pooled(load()), covariance=covariance).elbo
    result = pvi.fit(logistic_regression.model, tensors(load(intercept=False)), guide=guide, **options)
    assert result.settings["solver"] == "Newton"
    return optimum - result.elbo


@pytest.mark.parametrize("name", ["heart disease", "breast cancer"])
@pytest.mark.parametrize(("guide", "bound"), [(None, 0.1), ("full", 0.01)])
def test_synchronous_reaches_exact_global_vi(name, guide, bound):
    # Breast cancer's predictors have standard deviations up to 12, where quadrature is good to about 1e-4 nats.
    assert -1e-3 < gap(name, guide, damping=0.5, rounds=30) <= bound


@pytest.mark.parametrize("name", ["heart disease", "breast cancer"])
def test_sequential_reaches_exact_global_vi(name):
    assert -1e-3 < gap(name, None, schedule="sequential", damping=1.0, rounds=15) <= 0.02


def test_poisson_regression_reaches_exact_global_vi():
    generator = np.random.default_rng(0)
    truth = np.array([0.4, -0.3, 0.2])
    clients, design, counts = [], [], []
    for n in (30, 50, 20):
        x = generator.normal(size=(n, 3))
        y = generator.poisson(np.exp(x @ truth + 0.5)).astype(float)
        clients.append((torch.as_tensor(x), torch.as_tensor(y)))
        design.append(np.column_stack([x, np.ones(n)]))
        counts.append(y)
    optimum = global_vi(np.concatenate(design), np.concatenate(counts), likelihood="poisson", covariance="full")
    result = pvi.fit(poisson_regression.model, clients, guide="full", damping=0.5, rounds=30)
    assert result.elbo == pytest.approx(optimum.elbo, abs=1e-6)
    mean = torch.cat([result.posterior.mean["weights"], result.posterior.mean["bias"][None]])
    np.testing.assert_allclose(mean.numpy(), optimum.mean, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver", [pvi.solvers.SVI(steps=1000), pvi.solvers.PyroSVI(steps=700)], ids=["SVI", "PyroSVI"]
)
def test_stochastic_solvers_reach_the_same_posterior(solver):
    """Four seeds of a whole run each: the mean difference to the exact run is within 5 standard errors of zero."""
    clients = tensors(breast_cancer(features=5, clients=2, intercept=False))
    options = {"damping": 0.7, "rounds": 4}
    exact = pvi.fit(logistic_regression.model, clients, **options)
    runs = [pvi.fit(logistic_regression.model, clients, solver=solver, seed=seed, **options) for seed in range(4)]
    family, natural = exact.posterior.family, exact.posterior.natural
    # In units of the posterior: means in standard deviations, log standard deviations as they are.
    offsets = torch.stack([family.free(run.posterior.natural) - family.free(natural) for run in runs])
    offsets = offsets / family.free_scale(natural)
    error = offsets.std(0) / len(runs) ** 0.5
    # Four seeds estimate a standard error badly: 0.01 posterior standard deviations are its floor.
    assert (offsets.mean(0).abs() / error.clamp(min=0.01)).max() < 5
    assert offsets.abs().max() < 0.3
    assert all(exact.elbo - run.elbo < 0.1 for run in runs), [exact.elbo - run.elbo for run in runs]


@pytest.mark.slow
def test_full_covariance_agrees_with_nuts():
    clients = tensors(breast_cancer(features=5, intercept=False))
    result = pvi.fit(logistic_regression.model, clients, guide="full", damping=0.5, rounds=30)
    x, y = (torch.cat(parts) for parts in zip(*clients.values(), strict=True))
    pyro.set_rng_seed(0)
    kernel = NUTS(logistic_regression.model, jit_compile=False)
    mcmc = MCMC(kernel, num_samples=1500, warmup_steps=400, disable_progbar=True)
    mcmc.run(x, y)
    draws = mcmc.get_samples()
    for site in ("weights", "bias"):
        mean, sd = draws[site].mean(0), draws[site].std(0)
        assert ((result.posterior.mean[site] - mean).abs() / sd).max() < 0.1
        assert (result.posterior.sd[site] / sd - 1).abs().max() < 0.1
