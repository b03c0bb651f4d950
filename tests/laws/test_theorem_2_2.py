"""Theorem 2.2: the local free energies add up to the global one.

Let q = p Π t_m / Z_q with Z_q = ∫ p Π t_m, factors with their constants, and take each client's cavity as q / t_m with
q normalised (equation 2 at q = q_old). Then

    Σ_m F_m(q) = Σ_m E_q[log p(y_m | θ)] - E_q[log Π t_m] = Σ_m E_q[log p(y_m | θ)] - E_q[log (Z_q q / p)]
               = F(q) - log Z_q,

whatever the factors are, at a fixed point or not. The paper's statement is the case Z_q = 1, which undamped sequential
visits keep. The library's F_m leaves the cavity's constant out, log_scale(q / t_m) = -A(η_q) - log_scale(t_m).
"""

import datasets
import numpy as np
import pytest
import torch
from laws.federations import MODELS, NODES, NOISE, begin, last, oracle_moments, play, pooled, regression
from oracles import elbo

from pvi.factors import Factor, as_factor, cavity, multiply, normalise
from pvi.free_energy import free_energy
from pvi.models import logistic_regression
from pvi.objectives import local_free_energy


def log_normaliser(state):
    """log Z_q = log ∫ p Π t_m, nats."""
    product = as_factor(state.server.prior)
    for client in state.clients.values():
        product = multiply(product, client.factor)
    posterior, log_scale = normalise(product, state.server.posterior.coordinates)
    assert torch.allclose(posterior.natural, state.server.posterior.natural, rtol=1e-9, atol=1e-9)
    return log_scale.item()


def local_values(state):
    """F_m(q) of each client, its cavity q / t_m with all constants."""
    q = state.server.posterior
    found = []
    for name, client in state.clients.items():
        rest = cavity(q, client.factor)
        found.append(local_free_energy(state.problem.clients[name], q.natural, rest.natural).value + rest.log_scale)
    return torch.tensor(found)


def global_value(state, data, likelihood):
    """F(q) by the oracle: all rows together, one-dimensional expectations in numpy with nodes enough for a wide q."""
    design, y = pooled(data)
    moments = oracle_moments(state.server.posterior)
    return elbo(design, y, *moments, likelihood, noise_scale=NOISE, num_nodes=NODES)


def check(state, data, likelihood):
    """The identity against the library's F and the oracle's; returns log Z_q."""
    log_z, total = log_normaliser(state), local_values(state).sum().item()
    library = free_energy(state.problem, state.server, state.clients).value
    assert total == pytest.approx(library - log_z, abs=1e-8)
    assert total == pytest.approx(global_value(state, data, likelihood) - log_z, abs=1e-8)
    return log_z


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_after_every_damped_synchronous_round(likelihood, guide):
    """Z_q is not 1 here, and the identity holds long before the fixed point."""
    data = regression(likelihood)
    states = list(play(MODELS[likelihood], data, 4, guide=guide, damping=0.3))
    assert all(abs(check(state, data, likelihood)) > 0.1 for state in states)


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_undamped_sequential_passes_give_the_statement_of_the_paper(likelihood, guide):
    """Z_q = 1: Σ F_m(q) = F(q), after the first pass and at the fixed point."""
    data = regression(likelihood)
    for state in play(MODELS[likelihood], data, 3, guide=guide, damping=1.0, schedule="sequential"):
        assert check(state, data, likelihood) == pytest.approx(0, abs=1e-8)


def test_for_arbitrary_factors():
    """Random ones with random constants, improper ones among them: only their product with the prior is proper."""
    data = regression("bernoulli")
    _, state = begin(MODELS["bernoulli"], data)
    family, coordinates = state.server.prior.family, state.server.prior.coordinates
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tried = 0
    for _ in range(200):
        factors = [Factor(family, 0.4 * random(family.num_natural), random(())) for _ in data]
        product = as_factor(state.server.prior)
        for factor in factors:
            product = multiply(product, factor)
        if not product.is_proper:
            continue
        posterior, _ = normalise(product, coordinates)
        if family.variance(posterior.natural).max() > 2:
            continue  # the oracle's Gauss-Hermite rule would need thousands of nodes
        assert not all(factor.is_proper for factor in factors)
        clients = {
            name: client._replace(factor=factor)
            for (name, client), factor in zip(state.clients.items(), factors, strict=True)
        }
        check(state._replace(server=state.server._replace(posterior=posterior), clients=clients), data, "bernoulli")
        tried += 1
    assert tried > 5


def test_at_the_fixed_point_every_term_is_at_its_maximum():
    """There the sum of the maxima is the maximum of F: no client gains by moving alone."""
    data = regression("bernoulli")
    state = last(play(MODELS["bernoulli"], data, 25, damping=1.0, schedule="sequential"))
    check(state, data, "bernoulli")
    q, family = state.server.posterior.natural, state.server.posterior.family
    generator = torch.Generator().manual_seed(2)
    for name, client in state.clients.items():
        problem, rest = state.problem.clients[name], cavity(state.server.posterior, client.factor).natural
        best = local_free_energy(problem, q, rest).value
        for _ in range(5):
            free = family.free(q) + 0.1 * torch.randn(family.num_free, generator=generator).to(q) * family.free_scale(q)
            assert local_free_energy(problem, family.natural_from_free(free), rest).value < best


@pytest.fixture(scope="module")
def hospitals():
    """Heart disease, one client a hospital; the intercept moves to the model's bias."""
    parts = datasets.heart_disease(intercept=False)
    return [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in parts.values()]


@pytest.mark.parametrize(("schedule", "damping"), [("sequential", 1.0), ("synchronous", 0.4)])
def test_heart_disease_in_four_hospitals(hospitals, schedule, damping):
    states = play(logistic_regression.model, hospitals, 3, schedule=schedule, damping=damping)
    found = [check(state, hospitals, "bernoulli") for state in states]
    assert np.allclose(found, 0, atol=1e-8) == (schedule == "sequential")
