"""L-BFGS against exact solutions: quadrature, closed-form expectations maximised by another optimiser."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.optimize import minimize
from toy_programs import F64, normal, problem_of

from pvi.objectives import expected_log_likelihood, local_free_energy
from pvi.programs.linear_predictor import LinearPredictor, NotAffine
from pvi.solvers import LBFGS, Newton, NotGaussianError
from pvi.solvers.lbfgs import quasi_random
from pvi.solvers.quasi_newton import init, step

X = normal(30, 2, seed=1) @ torch.tensor([[1.0, 0.5], [0.0, 0.8]], dtype=F64)
Y = (X @ torch.tensor([1.0, -0.7], dtype=F64) + 0.8 * normal(30, seed=2) > 0).to(F64)


def logistic(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@pytest.mark.parametrize("guide", [None, "full"])
def test_quadrature_gives_newtons_optimum(guide):
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    exact, truth = Newton().solve(problem, prior.natural, prior.natural, 0)
    natural, info = LBFGS().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged
    assert info.free_energy == pytest.approx(truth.free_energy, abs=1e-9)
    scale = problem.family.variance(exact).sqrt()
    assert ((problem.family.location(natural) - problem.family.location(exact)) / scale).abs().max() < 1e-5
    assert (problem.family.variance(natural).sqrt() / scale).log().abs().max() < 1e-5


@pytest.mark.parametrize("guide", [None, "full"])
def test_fixed_draws_come_close_to_newtons_optimum(guide):
    """Judged by the exact free energy of what the draws led to."""
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    _, truth = Newton().solve(problem, prior.natural, prior.natural, 0)
    blind = problem._replace(predictor=NotAffine("it is hidden"))
    natural, info = LBFGS(num_samples=2048).solve(blind, prior.natural, prior.natural, 0)
    assert info.converged
    assert truth.free_energy - local_free_energy(problem, natural, prior.natural).value < 1e-4
    assert abs(info.free_energy - truth.free_energy) < 0.01


SCALES = 15
OUTCOMES = 1.5 * normal(SCALES, seed=4)


def scale_mixture(y):
    """30 latents: y_i ~ N(w_i, exp u_i), which no Gaussian fits."""
    w = pyro.sample("w", dist.Normal(y.new_zeros(SCALES), 1.0).to_event(1))
    u = pyro.sample("u", dist.Normal(y.new_zeros(SCALES), 1.0).to_event(1))
    with pyro.plate("rows", 1):
        pyro.sample("y", dist.Normal(w, u.exp()).to_event(1), obs=y)


def scale_mixture_free_energy(loc, scale):
    """In closed form, pair by pair: E[exp -2u] = exp(2 s_u² - 2 m_u). Without the prior's constant."""
    (m, m_u), (s, s_u) = loc.unbind(-1), scale.unbind(-1)
    fit = -0.5 * math.log(2 * math.pi) - m_u - 0.5 * ((OUTCOMES - m).square() + s**2) * (2 * s_u**2 - 2 * m_u).exp()
    entropy = 0.5 * math.log(2 * math.pi * math.e) + scale.log()
    return fit + (entropy - 0.5 * (loc.square() + scale.square())).sum(-1)


def test_thirty_latents_without_a_predictor_cost_less_than_a_hundredth_of_a_nat():
    problem, prior = problem_of(scale_mixture, OUTCOMES[None])
    natural, info = LBFGS().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged
    loc = problem.family.location(natural).reshape(2, SCALES).mT
    scale = problem.family.variance(natural).sqrt().reshape(2, SCALES).mT

    def loss(free):
        free = torch.as_tensor(free).reshape(SCALES, 4)
        leaf = free.clone().requires_grad_()
        value = -scale_mixture_free_energy(leaf[:, :2], leaf[:, 2:].exp()).sum()
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.item(), gradient.flatten().numpy()

    best = -minimize(loss, torch.zeros(4 * SCALES).numpy(), jac=True, tol=1e-12).fun
    found = scale_mixture_free_energy(loc, scale).sum().item()
    assert 0 <= best - found < 0.005
    # What is reported is the average over the draws: at least as close as as many independent ones would be.
    error = expected_log_likelihood(problem, natural, num_samples=2048).standard_error
    assert abs(info.free_energy - found) < 3 * error


def kinked(y):
    loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.0), 2.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Laplace(loc, 0.3), obs=y)


def test_a_kinked_likelihood_reaches_its_optimum():
    """E|y - w| of a folded Gaussian in closed form."""
    y = 0.5 + normal(7, seed=5)
    problem, prior = problem_of(kinked, y)
    assert isinstance(problem.predictor, NotAffine)

    def free_energy(m, s):
        gap, s = (y - m) / s, torch.as_tensor(s)
        folded = s * (math.sqrt(2 / math.pi) * (-0.5 * gap.square()).exp() + gap * torch.erf(gap / math.sqrt(2)))
        entropy = 0.5 * math.log(2 * math.pi * math.e) + s.log()
        return (-(folded / 0.3 + math.log(0.6)).sum() - (m**2 + s**2) / 8 + entropy).item()

    best = minimize(lambda free: -free_energy(free[0], math.exp(free[1])), [0.5, -1.0], method="Nelder-Mead",
                    options={"xatol": 1e-10, "fatol": 1e-13})  # fmt: skip
    natural, info = LBFGS().solve(problem, prior.natural, prior.natural, 0)
    m, s = problem.family.location(natural).item(), problem.family.variance(natural).sqrt().item()
    assert -best.fun - free_energy(m, s) < 1e-4
    assert abs(info.free_energy - free_energy(m, s)) < 0.01
    assert info.converged or "no further ascent" in info.message


def test_draws_are_mirrored_and_have_unit_covariance():
    problem, prior = problem_of(scale_mixture, OUTCOMES[None])
    z = quasi_random(problem.family, 256, prior.natural)
    assert torch.equal(z[:128], -z[128:])
    assert torch.allclose(z.mT @ z / 256, torch.eye(30, dtype=F64), atol=1e-12)
    few = quasi_random(problem.family, 40, prior.natural)
    assert torch.allclose(few.square().mean(0), torch.ones(30, dtype=F64), atol=1e-12)
    assert bool(torch.isfinite(few).all())


def test_too_few_draws_for_a_full_covariance_are_refused():
    problem, prior = problem_of(scale_mixture, OUTCOMES[None], guide="full")
    with pytest.raises(ValueError, match=r"client 'client 0': LBFGS cannot tell a full covariance over 30 latents"):
        LBFGS(num_samples=120).solve(problem, prior.natural, prior.natural, 0)


def test_too_many_latents_are_refused():
    def wide(y):
        w = pyro.sample("w", dist.Normal(y.new_zeros(30_000), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(w.square().sum(), 1.0), obs=y)

    problem, prior = problem_of(wide, normal(2))
    with pytest.raises(ValueError, match=r"quasi-random draws for 21201 latents at most, not for 30000; use"):
        LBFGS().solve(problem, prior.natural, prior.natural, 0)


def test_a_discrete_family_is_refused():
    def model(y):
        k = pyro.sample("k", dist.Bernoulli(y.new_tensor(0.3)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(k, 1.0), obs=y)

    problem, prior = problem_of(model, normal(5))
    with pytest.raises(NotGaussianError, match="LBFGS needs a Gaussian family"):
        LBFGS().solve(problem, prior.natural, prior.natural, 0)


def test_running_out_of_steps_is_said():
    problem, prior = problem_of(logistic, X, Y)
    assert isinstance(problem.predictor, LinearPredictor)
    natural, info = LBFGS(max_steps=2).solve(problem, prior.natural, prior.natural, 0)
    assert (info.steps, info.converged) == (2, False)
    assert info.message.startswith("not converged after 2 steps (decrement ")
    assert info.free_energy == pytest.approx(local_free_energy(problem, natural, prior.natural).value)
    assert info.free_energy > local_free_energy(problem, prior.natural, prior.natural).value


def test_options_are_checked():
    with pytest.raises(ValueError, match="LBFGS: max_steps must be at least 1, got 0"):
        LBFGS(max_steps=0)
    for number in (0, 7):
        with pytest.raises(ValueError, match=f"LBFGS: num_samples must be even and at least 2, got {number}"):
            LBFGS(num_samples=number)


def test_an_alpha_divergence_is_refused():
    problem, prior = problem_of(logistic, X, Y)
    with pytest.raises(ValueError, match=r"LBFGS maximises the variational free energy"):
        LBFGS().solve(problem._replace(alpha=1.0), prior.natural, prior.natural, 0)


def ascend(objective, start, steps):
    state = init(torch.tensor(start, dtype=F64), objective)
    for _ in range(steps):
        state, _ = step(state, objective)
    return state


def with_gradient(function):
    def objective(x):
        leaf = x.clone().requires_grad_()
        value = function(leaf)
        return value.detach(), torch.autograd.grad(value, leaf)[0]

    return objective


def test_the_optimiser_climbs_rosenbrocks_valley():
    state = ascend(with_gradient(lambda x: -((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2)), [-1.2, 1.0], 60)
    assert torch.allclose(state.offset, torch.ones(2, dtype=F64), atol=1e-6)


def test_the_optimiser_steps_back_from_values_that_are_not_finite():
    state = ascend(with_gradient(lambda x: (x.log() - x).sum()), [1e-3, 30.0], 40)
    assert torch.allclose(state.offset, torch.ones(2, dtype=F64), atol=1e-6)


def test_the_optimiser_never_goes_down():
    objective = with_gradient(lambda x: -(x.abs() * torch.tensor([1.0, 30.0], dtype=F64)).sum())
    state = init(torch.tensor([3.0, 1.0], dtype=F64), objective)
    for _ in range(40):
        new, info = step(state, objective)
        assert new.value >= state.value
        assert (info.step > 0) == (new.value > state.value)
        state = new
    assert state.value > -1e-3
