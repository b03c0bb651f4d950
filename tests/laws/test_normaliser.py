"""Z_q = ∫ p Π t_m, where factors keep their constants: t_m_new = q_m t_m / q, with equality.

Undamped sequential visits keep Z_q = 1 whatever the factors are (section 2.4). The log scales then hold the divergence,

    KL(q, p) = E_q[log q - log p] = Σ_m E_q[log t_m],     F(q) = Σ_m E_q[log p(y_m | θ) - log t_m],

and in a conjugate model's first pass log p(y_m | θ) - log t_m(θ) is log p(y_m | y_1, ..., y_m-1) at every θ: these
add up to the evidence. A damped visit multiplies Z_q by ∫ q^(1 - ρ) q_m^ρ, less than 1 unless q_m = q (Hölder).
"""

import numpy as np
import pytest
import torch
from laws.federations import MODELS, NODES, NOISE, begin, designs, last, oracle_moments, play, pooled, regression
from oracles import elbo, linear_regression

from pvi import client as clients_module
from pvi import server as server_module
from pvi.factors import Factor, as_factor, cavity, multiply, normalise
from pvi.families import expected_log_factor, log_prob
from pvi.objectives import expected_log_likelihood
from pvi.posterior import Posterior
from pvi.solvers import Newton


def visit(plan, state, name, damping=1.0):
    """A client's step, the server's, and the client's acceptance; the state after them, and η of q_m."""
    setting = server_module.setting(state.server, len(state.clients))
    moved, update, info = clients_module.step(
        state.clients[name], state.problem.clients[name], state.server.posterior, setting, plan.algorithm.cavity,
        plan.solver, damping,
    )  # fmt: skip
    assert update is not None, info.rejected
    server, told = server_module.step(state.server, [update], plan.algorithm.aggregate, state.problem.row_shares)
    assert told.step_fraction == 1
    accepted = clients_module.accept(moved, update, told.step_fraction)
    after = state._replace(server=server, clients=state.clients | {name: accepted})
    return after, state.server.posterior.natural + update.delta.natural / damping


def visits(likelihood, data, passes, damping=1.0, guide=None):
    """(name, state before, state after, η of q_m) of every visit of a sequential run."""
    plan, state = begin(MODELS[likelihood], data, solver=Newton(tolerance=1e-10), guide=guide)
    for name in list(state.clients) * passes:
        before = state
        state, q_m = visit(plan, state, name, damping)
        yield name, before, state, q_m


def product(state):
    """p Π t_m, a factor."""
    total = as_factor(state.server.prior)
    for client in state.clients.values():
        total = multiply(total, client.factor)
    return total


def log_normaliser(state):
    return normalise(product(state), state.server.posterior.coordinates)[1].item()


def points(state, number=20):
    """θ around the posterior, five times as wide."""
    family, natural = state.server.posterior.family, state.server.posterior.natural
    generator = torch.Generator().manual_seed(0)
    return family.sample(natural / 25, (number,), generator)


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_after_every_undamped_visit_the_product_is_the_posterior(likelihood, guide):
    data = regression(likelihood)
    for _, _, state, _ in visits(likelihood, data, 3, guide=guide):
        assert log_normaliser(state) == pytest.approx(0, abs=1e-9)
        x, q = points(state), state.server.posterior
        expected = log_prob(q.family, q.natural, x)
        assert torch.allclose(product(state).log_value(x), expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_the_log_scales_add_up_to_the_divergence_and_so_to_the_free_energy(likelihood, guide):
    data = regression(likelihood)
    design, y = pooled(data)
    for _, _, state, _ in visits(likelihood, data, 2, guide=guide):
        q = state.server.posterior
        parts = [
            client.factor.log_scale + expected_log_factor(q.family, q.natural, client.factor.natural)
            for client in state.clients.values()
        ]
        divergence = torch.stack(parts).sum().item()
        assert divergence == pytest.approx(q.kl(state.server.prior).item(), abs=1e-9)
        fit = sum(expected_log_likelihood(problem, q.natural).value for problem in state.problem.clients.values())
        expected = elbo(design, y, *oracle_moments(q), likelihood, noise_scale=NOISE, num_nodes=NODES)
        assert fit - divergence == pytest.approx(expected, abs=1e-8)


def test_in_a_conjugate_model_the_visits_of_a_pass_are_the_predictive_densities():
    """log p(y_m | θ) - log t_m(θ) is the same at every θ: log p(y_m | y_1, ..., y_m-1), by the oracle's evidences."""
    data = regression("gaussian")
    parts, total = designs(data), 0.0
    for index, (name, before, state, _) in enumerate(visits("gaussian", data, 1, guide="full")):
        x = points(state)
        design, y = parts[index]
        log_rows = -0.5 * ((y - x.numpy() @ design.T) / NOISE) ** 2 - 0.5 * np.log(2 * np.pi * NOISE**2)
        constant = log_rows.sum(1) - state.clients[name].factor.log_value(x).numpy()
        evidence, earlier = (linear_regression(*together(parts[:k]), noise_scale=NOISE)[2] for k in (index + 1, index))
        assert constant == pytest.approx(evidence - earlier, abs=1e-7)
        rest = cavity(before.server.posterior, before.clients[name].factor)
        q = state.server.posterior.natural
        problem = state.problem.clients[name]
        value = (
            expected_log_likelihood(problem, q).value
            + (q.new_zeros(()) + expected_log_factor(rest.family, q, rest.natural) + rest.log_scale).item()
        )
        value += state.server.posterior.entropy().item()  # F_m at its maximum
        assert value == pytest.approx(evidence - earlier, abs=1e-8)
        total += value
    assert total == pytest.approx(linear_regression(*pooled(data), noise_scale=NOISE)[2], abs=1e-8)


def together(parts):
    """Rows of some clients; none at all has a design of no rows."""
    size = 4
    return (
        np.concatenate([np.zeros((0, size)), *[design for design, _ in parts]]),
        np.concatenate([np.zeros(0), *[y for _, y in parts]]),
    )


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_a_damped_visit_lowers_it_by_a_divergence(likelihood, guide):
    """log Z_q falls by -log ∫ q^(1 - ρ) q_m^ρ, in numpy from the two Gaussians."""
    data, rho = regression(likelihood), 0.4
    for _, before, state, q_m in visits(likelihood, data, 2, damping=rho, guide=guide):
        q = before.server.posterior
        change = log_normaliser(state) - log_normaliser(before)
        assert change < -1e-8
        reached = Posterior(q.family, q_m, q.coordinates)
        assert change == pytest.approx(geometric_mixture([oracle_moments(q), oracle_moments(reached)], rho), abs=1e-8)


def geometric_mixture(moments, rho):
    """log ∫ N(m_0, S_0)^(1 - ρ) N(m_1, S_1)^ρ."""
    total, h, log_value = 0.0, 0.0, 0.0
    for (mean, covariance), weight in zip(moments, (1 - rho, rho), strict=True):
        precision = np.linalg.inv(covariance if covariance.ndim == 2 else np.diag(covariance))
        log_value += 0.5 * weight * (np.linalg.slogdet(precision)[1] - mean @ precision @ mean)
        total, h = total + weight * precision, h + weight * precision @ mean
    return log_value - 0.5 * np.linalg.slogdet(total)[1] + 0.5 * h @ np.linalg.solve(total, h)


def test_clients_that_move_together_do_not_keep_it():
    """An undamped synchronous round of a non-conjugate model: the constants do not cancel."""
    state = last(play(MODELS["bernoulli"], regression("bernoulli"), 1, damping=1.0))
    assert abs(log_normaliser(state)) > 0.1


def test_factors_that_nobody_fitted_keep_it_too():
    """Whatever the factors are: from random ones with p Π t_m = q, each undamped visit leaves Z_q where it was."""
    data = regression("bernoulli")
    plan, state = begin(MODELS["bernoulli"], data)
    family, prior = state.server.prior.family, state.server.prior
    generator = torch.Generator().manual_seed(0)
    clients = {}
    for name, client in state.clients.items():
        eta, log_scale = (
            0.1 * torch.randn(family.num_natural, generator=generator),
            torch.randn((), generator=generator),
        )
        clients[name] = client._replace(factor=Factor(family, eta.to(prior.natural), log_scale.to(prior.natural)))
    posterior, offset = normalise(product(state._replace(clients=clients)), prior.coordinates)
    state = state._replace(server=state.server._replace(posterior=posterior), clients=clients)
    assert abs(offset) > 0.1
    for name in clients:
        state, _ = visit(plan, state, name)
        assert log_normaliser(state) == pytest.approx(offset.item(), abs=1e-8)
