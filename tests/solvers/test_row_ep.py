"""Power EP with a factor a row against independent oracles, closed forms, and itself on other paths."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from oracles import linear_regression
from oracles.federated import moments_of
from oracles.power_ep import power_ep
from oracles.tilted import tilted_moments
from toy_programs import F64, normal, problem_of, regression, unknown_noise

import pvi
from pvi.solvers import SVI, RowEP, alpha_solver, row_ep
from pvi.solvers.row_sites import find_layout
from pvi.solvers.tilted import around, tilt
from pvi.testing import check_solver

X = normal(60, 3, seed=1) @ torch.tensor([[1.0, 0.6, 0.2], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]], dtype=F64)
ETA = X @ torch.tensor([1.5, -1.0, 0.5], dtype=F64)
BINARY = (ETA + normal(60, seed=3) > 0).to(F64)
COUNTS = torch.poisson(ETA.clamp(max=4).exp(), generator=torch.Generator().manual_seed(0))
OUTCOMES = {"bernoulli": BINARY, "probit": BINARY, "poisson": COUNTS, "gaussian": ETA + 0.8 * normal(60, seed=4)}


def observation(likelihood, eta):
    if likelihood == "bernoulli":
        return dist.Bernoulli(logits=eta)
    if likelihood == "probit":
        return dist.Bernoulli(probs=torch.special.ndtr(eta))
    return dist.Poisson(eta.exp()) if likelihood == "poisson" else dist.Normal(eta, 0.8)


def glm(likelihood, scale=1.0, offset=0.0):
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), scale).to_event(1))
        eta = pyro.deterministic("linear_predictor", x @ weights + offset)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", observation(likelihood, eta), obs=y)

    return model


def solved(model, x, y, guide, alpha, solver=None, taken=1.0):
    """The result under the cavity prior^taken."""
    problem, prior = problem_of(model, x, y, guide=guide)
    cavity = taken * prior.natural
    natural, info = (solver or RowEP()).solve(problem._replace(alpha=alpha), cavity, prior.natural, 0)
    return problem, prior, natural, info


@pytest.mark.parametrize("alpha", [0.01, 0.5, 1.0])
@pytest.mark.parametrize(("guide", "covariance"), [(None, "diagonal"), ("full", "full")])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "gaussian"])
def test_posterior_and_evidence_are_the_oracles(likelihood, guide, covariance, alpha):
    y = OUTCOMES[likelihood]
    problem, prior, natural, info = solved(glm(likelihood), X, y, guide, alpha)
    want = power_ep(X.numpy(), y.numpy(), alpha, likelihood, covariance=covariance, noise_scale=0.8)
    mean, variance = moments_of(want.posterior)
    variance = np.diag(variance) if variance.ndim == 2 else variance
    assert info.converged, info.message
    np.testing.assert_allclose(problem.family.location(natural).numpy(), mean, atol=1e-7)
    np.testing.assert_allclose(problem.family.variance(natural).numpy(), variance, rtol=1e-7)
    evidence = info.free_energy - prior.family.log_partition(prior.natural).item()
    assert evidence == pytest.approx(want.log_evidence, abs=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_linear_regression_is_exact_whatever_alpha(alpha):
    y = OUTCOMES["gaussian"]
    problem, prior, natural, info = solved(glm("gaussian", offset=0.7), X, y + 0.7, "full", alpha)
    mean, covariance, evidence = linear_regression(X.numpy(), y.numpy(), 0.8)
    np.testing.assert_allclose(problem.family.location(natural).numpy(), mean, atol=1e-8)
    np.testing.assert_allclose(problem.family.variance(natural).numpy(), np.diag(covariance), rtol=1e-8)
    assert info.free_energy - prior.family.log_partition(prior.natural).item() == pytest.approx(evidence, abs=1e-8)


def test_alpha_zero_passes_the_law_suite_of_variational_solvers():
    check_solver(RowEP())


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize(("likelihood", "scale"), [("bernoulli", 100.0), ("poisson", 10.0)])
def test_priors_that_know_nothing(likelihood, scale, guide):
    """The start may be as wide as the prior, or the answer itself: the end is the same."""
    problem, prior, natural, info = solved(glm(likelihood, scale), X, OUTCOMES[likelihood], guide, 1.0)
    assert info.converged, info.message
    again, info = RowEP().solve(problem._replace(alpha=1.0), prior.natural, natural, 0)
    assert info.converged, info.message
    torch.testing.assert_close(again, natural, rtol=1e-6, atol=1e-6)


def test_an_improper_cavity_is_legal_where_the_rows_make_up_for_it():
    """Every row's tilted distribution has the moments of q, and q is cavity times the rows' factors."""
    problem, prior = problem_of(glm("poisson"), X, COUNTS, guide="full")
    family, cavity = problem.family, -prior.natural
    assert not bool(family.is_proper(cavity))
    rows = find_layout(problem)
    state = row_ep.init(rows, family, prior.natural)
    for _ in range(40):
        state, info = row_ep.step(state, rows, family, cavity, 1.0)
    assert info.movement < 1e-9
    h, precision = (part[:, 0].numpy() for part in state.sites)
    design = X.numpy()
    posterior = np.linalg.inv(-np.eye(3) + (design.T * precision) @ design)
    mean, variance = design @ posterior @ (design.T @ h), ((design @ posterior) * design).sum(1)
    cavity_precision, cavity_h = 1 / variance - precision, mean / variance - h
    tilted = tilted_moments(COUNTS.numpy(), cavity_h / cavity_precision, 1 / cavity_precision, 1.0, "poisson")
    np.testing.assert_allclose(tilted[1], mean, atol=1e-8)
    np.testing.assert_allclose(tilted[2], variance, rtol=1e-8)
    natural, solved_info = RowEP().solve(problem._replace(alpha=1.0), cavity, prior.natural, 0)
    assert solved_info.converged
    np.testing.assert_allclose(family.location(natural).numpy(), posterior @ (design.T @ h), atol=1e-7)


def test_rows_that_no_quadrature_can_help_are_counted():
    """A logistic likelihood does not make up for a cavity that grows like exp(x²)."""
    _, _, natural, info = solved(glm("bernoulli"), X, BINARY, "full", 1.0, RowEP(max_steps=5), taken=-0.5)
    assert not info.converged
    assert "rows with improper cavities kept their factors" in info.message
    assert bool(torch.isfinite(natural).all())


@pytest.mark.parametrize("guide", [None, "full"])
def test_a_row_without_latents_only_adds_its_likelihood(guide):
    x, y = torch.cat([X, X.new_zeros(1, 3)]), torch.cat([BINARY, BINARY.new_ones(1)])
    _, _, natural, info = solved(glm("bernoulli"), x, y, guide, 0.5)
    _, _, want, without = solved(glm("bernoulli"), X, BINARY, guide, 0.5)
    torch.testing.assert_close(natural, want, rtol=1e-7, atol=1e-7)
    assert info.free_energy == pytest.approx(without.free_energy - np.log(2), abs=1e-9)


def test_single_precision():
    problem, prior = problem_of(glm("bernoulli"), X, BINARY, guide="full")
    want, _ = RowEP().solve(problem._replace(alpha=1.0), prior.natural, prior.natural, 0)
    result = pvi.fit(glm("bernoulli"), [(X.float(), BINARY.float())], guide="full", algorithm="power-ep", damping=1.0,
                     rounds=3)  # fmt: skip
    assert result.posterior.natural.dtype == torch.float32
    sd = problem.family.variance(want).sqrt()
    off = (result.posterior.mean["weights"].double() - problem.family.location(want)) / sd
    assert off.abs().max() < 1e-3


def test_what_it_does_not_cover_is_said():
    data = (X, OUTCOMES["gaussian"])
    mixed, prior = problem_of(regression, *data, guide=pvi.FullCovariance(("weights",)))
    with pytest.raises(ValueError, match=r"client 'client 0': RowEP: it needs one full-covariance .*FullGaussian.*SVI"):
        RowEP().solve(mixed._replace(alpha=1.0), prior.natural, prior.natural, 0)
    other, prior = problem_of(unknown_noise, data[1])
    with pytest.raises(ValueError, match=r"it needs a generalised linear model, but .*or use pvi.solvers.SVI"):
        RowEP().solve(other._replace(alpha=1.0), prior.natural, prior.natural, 0)
    covered, _ = problem_of(regression, *data)
    assert isinstance(alpha_solver([covered]), RowEP)
    assert isinstance(alpha_solver([covered, mixed]), SVI)
    assert alpha_solver([other]).num_particles == 32
    with pytest.raises(ValueError, match="RowEP: max_steps must be at least 1, got 0"):
        RowEP(max_steps=0)
    with pytest.raises(ValueError, match="RowEP: tolerance must be positive"):
        RowEP(tolerance=0)


def test_stopping_early_is_said():
    *_, info = solved(glm("bernoulli"), X, BINARY, None, 1.0, RowEP(max_steps=2))
    assert not info.converged
    assert info.message.startswith("power EP still moved by")


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 1.0])
@pytest.mark.parametrize("likelihood", ["bernoulli", "probit", "poisson", "gaussian"])
def test_tilted_moments_on_a_window_that_finds_itself(likelihood, alpha):
    """Against a dense grid; cavities from 1e-3 to 6 wide, up to 12 away from where the likelihood is."""
    rng = np.random.default_rng(0)
    loc, variance = torch.as_tensor(4 * rng.normal(size=100)), torch.as_tensor(rng.gamma(0.5, 8, size=100) + 1e-3)
    y = torch.as_tensor(rng.integers(0, 2, 100).astype(float))
    if likelihood == "poisson":
        loc, variance = loc.clamp(max=4), variance.clamp(max=2)
        y = torch.as_tensor(rng.poisson(loc.exp().numpy()).astype(float))
    elif likelihood == "gaussian":
        y = loc + 3 * variance.sqrt()

    def log_prob(f):
        return observation(likelihood, f).log_prob(y) if likelihood != "probit" else (
            torch.special.log_ndtr(torch.where(y > 0.5, f, -f))
        )  # fmt: skip

    found, window = tilt(log_prob, loc, variance, alpha, 1.0, around(loc, variance))
    assert bool(found.found.all())
    mean = loc + alpha * variance * found.slope
    spread = variance * (1 - alpha * variance * found.curvature)
    logs, want, wanted = tilted_moments(y.numpy(), loc.numpy(), variance.numpy(), alpha, likelihood, 0.8)
    np.testing.assert_allclose(found.log_normaliser.numpy(), logs, atol=1e-9)
    assert np.abs((mean.numpy() - want) / np.sqrt(wanted)).max() < 1e-9
    np.testing.assert_allclose(spread.numpy(), wanted, rtol=1e-9)
    again, _ = tilt(log_prob, loc, variance, alpha, 1.0, window)
    torch.testing.assert_close(again.slope, found.slope, rtol=1e-9, atol=1e-9)


def test_a_likelihood_that_is_a_needle_in_its_cavity():
    """Normal(y; f, 0.01) under a cavity of width 10, 120 away: closed form."""
    loc, variance, y = (torch.tensor([number], dtype=F64) for number in (0.0, 100.0, 120.0))
    found, _ = tilt(lambda f: dist.Normal(f, 0.01).log_prob(y), loc, variance, 1.0, 1.0, around(loc, variance))
    assert bool(found.found.all())
    evidence = dist.Normal(loc, (variance + 1e-4).sqrt()).log_prob(y)
    assert found.log_normaliser.item() == pytest.approx(evidence.item(), rel=1e-12)
    assert (loc + variance * found.slope).item() == pytest.approx(120 * 100 / (100 + 1e-4), rel=1e-9)


def test_a_discrete_latent_alone_is_exact():
    def model(y):
        high = pyro.sample("high", dist.Bernoulli(y.new_tensor(0.3)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(high, 1.0), obs=y)

    y = normal(5)
    result = pvi.fit(model, [(y[:2],), (y[2:],)], guide="conjugate", algorithm="power-ep", damping=1.0, rounds=1)
    log_odds = (dist.Normal(1.0, 1.0).log_prob(y) - dist.Normal(0.0, 1.0).log_prob(y)).sum() + math.log(0.3 / 0.7)
    assert result.posterior.mean["high"].item() == pytest.approx(torch.sigmoid(log_odds).item(), abs=1e-12)


def test_other_discrete_latents_are_refused():
    def model(y):
        high = pyro.sample("high", dist.Bernoulli(y.new_tensor(0.3)))
        centre = pyro.sample("centre", dist.Normal(y.new_tensor(0.0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(high * centre, 1.0), obs=y)

    with pytest.raises(ValueError, match=r"client 'client 0': no solver minimises .* discrete latents \['high'\]"):
        pvi.fit(model, [(normal(5),)], guide="conjugate", algorithm="power-ep")
