"""Conjugate models: one undamped synchronous round is exact inference, posterior and evidence."""

from functools import partial

import numpy as np
import pytest
import torch
from laws.federations import MODELS, designs, oracle_natural, regression
from laws.federations import pooled as all_rows
from oracles import bcm, global_vi
from oracles import linear_regression as closed_form

import pvi
from pvi.factors import as_factor, multiply, normalise
from pvi.models import linear_regression
from pvi.solvers import Newton

NOISE = 0.7


def clients(sizes: tuple[int, ...] = (12, 7, 31), features: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(features, generator=generator, dtype=torch.float64)
    data = []
    for n in sizes:
        x = torch.randn(n, features, generator=generator, dtype=torch.float64)
        data.append((x, x @ truth + NOISE * torch.randn(n, generator=generator, dtype=torch.float64)))
    return data


def pooled(data: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    x, y = torch.cat([x for x, _ in data]), torch.cat([y for _, y in data])
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).numpy(), y.numpy()


@pytest.fixture(scope="module")
def exact() -> tuple[np.ndarray, np.ndarray, float]:
    return closed_form(*pooled(clients()), noise_scale=NOISE)


@pytest.fixture(scope="module")
def one_round() -> pvi.Result:
    model = partial(linear_regression.model, noise_scale=NOISE)
    return pvi.fit(model, clients(), guide="full", damping=1.0, rounds=1)


def test_one_undamped_synchronous_round_is_the_closed_form_posterior(one_round, exact):
    mean, covariance, _ = exact
    posterior = one_round.posterior
    assert posterior.site_names == ("weights", "bias")
    found = posterior.family.standard(posterior.natural)
    np.testing.assert_allclose(found["weights+bias.loc"].numpy(), mean, atol=1e-8)
    np.testing.assert_allclose(found["weights+bias.covariance_matrix"].numpy(), covariance, atol=1e-8)


def test_its_free_energy_is_the_evidence(one_round, exact):
    assert one_round.elbo == pytest.approx(exact[2], abs=1e-8)
    assert one_round.history[-1].elbo_standard_error == 0


def test_one_sequential_pass_is_exact_too(exact):
    model = partial(linear_regression.model, noise_scale=NOISE)
    result = pvi.fit(model, clients(), guide="full", schedule="sequential", damping=1.0, rounds=1)
    assert result.elbo == pytest.approx(exact[2], abs=1e-8)


def test_undamped_sequential_visits_keep_the_product_normalised():
    """p Π t_m = q after every visit, so Z_q = 1 whatever the factors are (section 2.4)."""
    model = partial(linear_regression.model, noise_scale=NOISE)
    result = pvi.fit(model, clients(), schedule="sequential", damping=1.0, rounds=3)
    product = as_factor(result.prior)
    for factor in result.factors.values():
        product = multiply(product, factor)
    _, log_normaliser = normalise(product, result.posterior.coordinates)
    assert log_normaliser.item() == pytest.approx(0.0, abs=1e-8)


def test_factors_and_prior_sum_to_the_posterior(one_round):
    total = one_round.prior.natural + sum(factor.natural for factor in one_round.factors.values())
    assert torch.allclose(total, one_round.posterior.natural, atol=1e-10)
    assert one_round.history[-1].drift < 1e-10


def test_mean_field_fixed_point_is_the_mean_field_optimum():
    """KL(q, p) of a Gaussian target: means are exact, precisions the diagonal of the posterior precision."""
    data = clients()
    design, y = pooled(data)
    model = partial(linear_regression.model, noise_scale=NOISE)
    result = pvi.fit(model, data, damping=0.5, rounds=60)
    mean, covariance, _ = closed_form(design, y, noise_scale=NOISE)
    found = torch.cat([result.posterior.mean["weights"], result.posterior.mean["bias"][None]])
    np.testing.assert_allclose(found.numpy(), mean, atol=1e-6)
    sd = torch.cat([result.posterior.sd["weights"], result.posterior.sd["bias"][None]])
    np.testing.assert_allclose(sd.numpy(), np.diag(np.linalg.inv(covariance)) ** -0.5, atol=1e-8)


@pytest.mark.parametrize("algorithm", ["bcm-same", "bcm-split"])
def test_committee_machines_are_exact(algorithm, exact):
    """η_p + Σ λ_m, whether each client used p and the server divides it out again, or each used its share p^(1/M)."""
    mean, covariance, evidence = exact
    model = partial(linear_regression.model, noise_scale=NOISE)
    result = pvi.fit(model, clients(), guide="full", algorithm=algorithm)
    found = result.posterior.family.standard(result.posterior.natural)
    np.testing.assert_allclose(found["weights+bias.loc"].numpy(), mean, atol=1e-8)
    np.testing.assert_allclose(found["weights+bias.covariance_matrix"].numpy(), covariance, atol=1e-8)
    assert result.elbo == pytest.approx(evidence, abs=1e-8)


@pytest.mark.parametrize(("algorithm", "split"), [("bcm-same", None), ("bcm-split", "clients")])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_outside_conjugate_models_they_are_not(likelihood, algorithm, split):
    """What they do reach is the oracle's committee, below the optimum: the clients' factors depend on one another."""
    data = regression(likelihood)
    result = pvi.fit(MODELS[likelihood], data, algorithm=algorithm, solver=Newton(tolerance=1e-10))
    found = oracle_natural(result.posterior.family, result.posterior.natural)
    for one, other in zip(found, bcm(designs(data), split, likelihood).posterior, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert result.elbo < global_vi(*all_rows(data), likelihood).elbo - 0.1
