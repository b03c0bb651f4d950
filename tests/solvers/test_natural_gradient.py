"""Fixed-point iterations against Newton, quadrature and exhaustive sums; one step against the paper's formula."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import optimize, special
from toy_programs import F64, normal, problem_of

from pvi.objectives import local_free_energy
from pvi.programs.linear_predictor import NotAffine
from pvi.solvers import LBFGS, GradientAscent, NaturalGradient, Newton, NotExactError
from pvi.solvers.expected import find_expectation
from pvi.solvers.fixed_point import fixed_point_step
from pvi.solvers.sampled import sampled_expectation

X = normal(40, 3, seed=1) @ torch.tensor([[1.0, 0.9, 0.5], [0.0, 0.3, 0.5], [0.0, 0.0, 0.4]], dtype=F64)
Y = (X @ torch.tensor([1.0, -0.7, 0.4], dtype=F64) + 0.8 * normal(40, seed=2) > 0).to(F64)


def logistic(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.5).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def hidden(problem):
    return problem._replace(predictor=NotAffine("it is hidden"))


def deviations(problem, natural, exact):
    family, scale = problem.family, problem.family.variance(exact).sqrt()
    loc = (family.location(natural) - family.location(exact)) / scale
    return torch.cat([loc, (family.variance(natural).sqrt() / scale).log()])


@pytest.mark.parametrize("guide", [None, "full"])
def test_exact_expectations_reach_newtons_optimum(guide):
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    exact, truth = Newton().solve(problem, prior.natural, prior.natural, 0)
    natural, info = NaturalGradient(exact=True).solve(problem, prior.natural, prior.natural, 0)
    assert info.converged
    assert info.free_energy == pytest.approx(truth.free_energy, abs=1e-9)
    assert deviations(problem, natural, exact).abs().max() < 1e-5


def test_the_undamped_mean_field_iteration_diverges_where_the_search_converges():
    problem, prior = problem_of(logistic, 2 * X, Y)
    _, undamped = NaturalGradient(step_size=1.0, steps=60).solve(problem, prior.natural, prior.natural, 0)
    _, searched = NaturalGradient().solve(problem, prior.natural, prior.natural, 0)
    assert searched.converged
    assert not undamped.converged
    assert "not converged after 60 steps" in undamped.message
    assert searched.free_energy > undamped.free_energy + 0.1


@pytest.mark.parametrize("guide", [None, "full"])
def test_one_step_is_the_papers_formula(guide):
    """Precision and precision-mean, with expectations by a fine grid over each row's predictor."""
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    start = problem.family.relocate(2.5 * prior.natural, torch.tensor([0.3, -0.2, 0.1], dtype=F64))
    cavity = 1.3 * prior.natural
    natural, info = NaturalGradient(steps=1, step_size=0.3).solve(problem, cavity, start, 0)
    m, precision = torch.tensor([0.3, -0.2, 0.1], dtype=F64), 2.5 / 1.5**2
    z = torch.linspace(-9, 9, 4001, dtype=F64)
    weights = torch.softmax(-0.5 * z.square(), 0)
    chance = torch.sigmoid((X @ m) + X.square().sum(1).div(precision).sqrt() * z[:, None])
    slope, curvature = weights @ (Y - chance), -(weights @ (chance * (1 - chance)))
    hessian, old = X.mT @ (curvature[:, None] * X), precision * torch.eye(3, dtype=F64)
    if guide is None:
        hessian = torch.diag(hessian.diagonal())
    new = 0.7 * old + 0.3 * (1.3 / 1.5**2 * torch.eye(3, dtype=F64) - hessian)
    pull = 0.7 * precision * m + 0.3 * (X.mT @ slope - hessian @ m)
    assert torch.allclose(problem.family.precision_matrix(natural), new, atol=1e-9)
    assert torch.allclose(problem.family.location(natural), torch.linalg.solve(new, pull), atol=1e-9)
    assert info.steps == 1


@pytest.mark.parametrize(("batch_size", "noise"), [(None, 0.02), (10, 0.1)])
@pytest.mark.parametrize("guide", [None, "full"])
def test_draws_come_to_newtons_optimum_within_their_noise(guide, batch_size, noise):
    x = X @ torch.linalg.inv(torch.linalg.cholesky(X.mT @ X / 40)).mT
    problem, prior = problem_of(logistic, x, Y, guide=guide)
    exact, truth = Newton().solve(problem, prior.natural, prior.natural, 0)
    solver, found = NaturalGradient(steps=200, batch_size=batch_size), []
    for seed in range(4):
        natural, info = solver.solve(hidden(problem), prior.natural, prior.natural, seed)
        found.append(deviations(problem, natural, exact))
        assert abs(info.free_energy - truth.free_energy) < 1
    results = torch.stack(found)
    spread = results.var(0).mean().sqrt()
    assert spread < noise
    # 18 pooled degrees of freedom: 6 standard errors have a chance of 1e-5 each.
    assert results.mean(0).abs().max() < 6 * spread / 2 + 1e-3


@pytest.mark.parametrize("guide", [None, "full"])
def test_estimates_are_unbiased_whatever_the_baseline(guide):
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    natural = problem.family.relocate(1.7 * prior.natural, torch.tensor([0.3, -0.2, 0.1], dtype=F64))
    exact = find_expectation(problem, natural)(natural)
    generator = torch.Generator().manual_seed(3)
    for baseline in (0 * natural, exact.gradient, natural - prior.natural):
        found = [sampled_expectation(hidden(problem), natural, baseline, 8, None, generator) for _ in range(200)]
        for part, truth in (
            ([one.gradient for one in found], exact.gradient),
            ([one.value for one in found], exact.value),
        ):
            stacked = torch.stack(part)
            error = stacked.std(0) / 200**0.5 + 1e-12
            assert ((stacked.mean(0) - truth) / error).abs().max() < 5


def test_the_right_baseline_takes_most_of_the_noise_away():
    problem, prior = problem_of(logistic, X, Y, guide="full")
    exact, _ = Newton().solve(problem, prior.natural, prior.natural, 0)

    def noise(baseline):
        generator = torch.Generator().manual_seed(4)
        found = [sampled_expectation(problem, exact, baseline, 8, None, generator).gradient for _ in range(50)]
        return torch.stack(found).std(0)

    assert bool((noise(exact - prior.natural) < 0.4 * noise(0 * exact)).all())


def counts(x, y):
    """A prior so wide that expectations of exp overflow under it."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 5.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson((x @ weights).exp()), obs=y)


@pytest.mark.parametrize("guide", [None, "full"])
def test_a_start_under_which_the_likelihood_overflows(guide):
    x = 3 * normal(50, 4, seed=1)
    rates = (x @ torch.tensor([0.2, -0.1, 0.3, 0.0], dtype=F64)).exp()
    y = torch.poisson(rates, generator=torch.Generator().manual_seed(0))
    problem, prior = problem_of(counts, x, y, guide=guide)
    _, truth = Newton().solve(problem, prior.natural, prior.natural, 0)
    for solver in (NaturalGradient(), LBFGS()):
        _, info = solver.solve(problem, prior.natural, prior.natural, 0)
        assert info.converged
        assert info.free_energy == pytest.approx(truth.free_energy, abs=1e-8)
        natural, info = solver.solve(hidden(problem), prior.natural, prior.natural, 0)
        assert info.converged
        assert truth.free_energy - local_free_energy(problem, natural, prior.natural).value < 0.02


def test_steps_without_a_finite_gradient_are_counted():
    problem, prior = problem_of(lambda y: coupled(y / 0), torch.ones(3, dtype=F64))
    problem = problem._replace(conjugate=None)
    _, info = NaturalGradient(exact=False, steps=12).solve(problem, prior.natural, prior.natural, 0)
    assert info.message == "12 of 12 steps were lost: their gradients are not finite"
    assert not info.converged
    _, info = NaturalGradient().solve(problem, prior.natural, prior.natural, 0)
    assert "no further ascent" in info.message


def coupled(y):
    """Two switches whose posterior is correlated."""
    a = pyro.sample("a", dist.Bernoulli(y.new_tensor(0.4)))
    b = pyro.sample("b", dist.Bernoulli(y.new_tensor(0.7)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a + 0.8 * b, 1.5), obs=y)


def test_discrete_latents_reach_the_best_product_by_exhaustive_sums():
    y = torch.tensor([0.7, 1.5, 0.2], dtype=F64)
    problem, prior = problem_of(coupled, y)
    table = np.array(
        [
            [
                math.log([0.6, 0.4][a] * [0.3, 0.7][b])
                + dist.Normal(torch.tensor(a + 0.8 * b, dtype=F64), 1.5).log_prob(y).sum().item()
                for b in (0, 1)
            ]
            for a in (0, 1)
        ]
    )

    def loss(logits):
        p, q = special.expit(logits)
        joint = np.outer([1 - p, p], [1 - q, q])
        return (joint * (np.log(joint) - table)).sum()

    best = optimize.minimize(loss, [0.0, 0.0], tol=1e-14)
    natural, info = NaturalGradient().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged
    assert np.allclose(natural.numpy(), best.x, atol=1e-4)
    normaliser = problem.family.log_partition(prior.natural).item()
    assert info.free_energy - normaliser == pytest.approx(-best.fun, abs=1e-9)


def test_a_switch_beside_a_continuous_latent():
    """q(k) q(w): against alternating closed-form updates (mean-field coordinate ascent)."""
    y = torch.tensor([1.9, 0.4, 1.2, 1.6], dtype=F64)

    def model(y):
        k = pyro.sample("k", dist.Bernoulli(y.new_tensor(0.5)))
        w = pyro.sample("w", dist.Normal(y.new_tensor(0.0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(w + k, 1.0), obs=y)

    problem, prior = problem_of(model, y)
    chance = 0.5
    for _ in range(500):
        mean = (y - chance).sum().item() / 5
        chance = special.expit((y - mean - 0.5).sum().item())
    natural, info = NaturalGradient(steps=400).solve(problem, prior.natural, prior.natural, 0)
    standard = problem.family.standard(natural)
    assert standard["k.probs"].item() == pytest.approx(chance, abs=0.01)
    assert standard["w.loc"].item() == pytest.approx(mean, abs=0.02)
    assert standard["w.scale"].item() == pytest.approx(5**-0.5, rel=0.02)
    assert info.converged


def test_a_gamma_without_a_conjugate_likelihood():
    """The scale of a normal: E[log s] and E[s⁻²] in closed form, maximised by another optimiser."""
    y = 2 * normal(20, seed=3)
    total = y.square().sum().item()

    def model(y):
        s = pyro.sample("s", dist.Gamma(y.new_tensor(2.0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(0.0, s), obs=y)

    def guide(y):
        pyro.sample("s", dist.Gamma(y.new_tensor(2.0), 1.0))

    def loss(logs):
        a, b = np.exp(logs)
        log_s = special.digamma(a) - np.log(b)
        fit = -20 * log_s - 0.5 * total * b**2 / ((a - 1) * (a - 2)) - 10 * math.log(2 * math.pi)
        return -(fit + log_s - a / b + a - np.log(b) + special.gammaln(a) + (1 - a) * special.digamma(a))

    best = optimize.minimize(loss, np.log([30.0, 20.0]), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13})
    problem, prior = problem_of(model, y, guide=guide)
    natural, info = NaturalGradient().solve(problem, prior.natural, prior.natural, 0)
    found = np.log([value.item() for value in problem.family.standard(natural).values()])
    assert loss(found) - best.fun < 1e-3
    assert info.converged
    # A(η) of the prior, Gamma(2, 1), is 0: both free energies count alike.
    assert abs(info.free_energy + best.fun) < 0.05


def test_a_step_never_leaves_the_family():
    """A cavity that has taken away more than the client's few rows give."""
    problem, prior = problem_of(logistic, X[:2], Y[:2])
    expected = find_expectation(problem, prior.natural)(prior.natural)
    natural, taken = fixed_point_step(problem, prior.natural, -3 * prior.natural, 1.0, expected)
    assert bool(problem.family.is_proper(natural))
    assert 0 < taken < 1
    assert torch.allclose(
        natural, prior.natural + taken * (-3 * prior.natural + expected.gradient - prior.natural), atol=1e-12
    )


def test_exact_expectations_are_refused_with_the_reason():
    def model(y):
        scale = pyro.sample("scale", dist.LogNormal(y.new_tensor(0.0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(0.0, scale), obs=y)

    problem, prior = problem_of(model, normal(5))
    assert isinstance(problem.predictor, NotAffine)
    with pytest.raises(NotExactError, match="client 'client 0': exact expectations need") as said:
        NaturalGradient(exact=True).solve(problem, prior.natural, prior.natural, 0)
    assert problem.predictor.reason in str(said.value)
    assert "exact=None" in str(said.value)


def test_too_many_discrete_values_are_refused():
    def model(y):
        with pyro.plate("switches", 40):
            k = pyro.sample("k", dist.Bernoulli(y.new_tensor(0.5)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(k.sum() ** 2, 1.0), obs=y)

    problem, prior = problem_of(model, normal(5))
    with pytest.raises(ValueError, match=r"client 'client 0': sites \['k'\] cannot be summed over: .* too many"):
        NaturalGradient().solve(problem, prior.natural, prior.natural, 0)


def test_stopping_early_is_said():
    problem, prior = problem_of(logistic, X, Y)
    _, info = NaturalGradient(steps=2).solve(problem, prior.natural, prior.natural, 0)
    assert (info.steps, info.converged) == (2, False)
    assert info.message.startswith("not converged after 2 steps (distance ")
    _, info = NaturalGradient(steps=3, exact=False).solve(problem, prior.natural, prior.natural, 0)
    assert (info.steps, info.converged) == (3, False)
    assert info.message == "the free energy still rose after 3 steps"


def test_options_are_checked():
    for wrong, message in (
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"step_size": 0.0}, r"step_size must lie in \(0, 1\], got 0.0"),
        ({"step_size": 1.5}, r"step_size must lie in \(0, 1\], got 1.5"),
        ({"num_particles": 3}, "num_particles must be even and at least 2, got 3"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 5, "exact": True}, "mini-batches are not exact"),
    ):
        with pytest.raises(ValueError, match=f"NaturalGradient: .*{message}"):
            NaturalGradient(**wrong)
    for wrong, message in (
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"num_particles": 1}, "num_particles must be even"),
    ):
        with pytest.raises(ValueError, match=f"GradientAscent: {message}"):
            GradientAscent(**wrong)


@pytest.mark.parametrize("solver", [NaturalGradient(), GradientAscent()])
def test_an_alpha_divergence_is_refused(solver):
    problem, prior = problem_of(logistic, X, Y)
    with pytest.raises(ValueError, match=f"{solver.name} maximises the variational free energy"):
        solver.solve(problem._replace(alpha=0.5), prior.natural, prior.natural, 0)


@pytest.mark.parametrize("guide", [None, "full"])
def test_gradient_ascent_takes_the_gradient_in_natural_parameters(guide):
    """Against central differences of the exact free energy."""
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    start = problem.family.relocate(2 * prior.natural, torch.tensor([0.3, -0.2, 0.1], dtype=F64))
    natural, info = GradientAscent(learning_rate=1e-3).solve(problem, prior.natural, start, 0)
    for k in range(len(start)):
        nudge = torch.zeros_like(start)
        nudge[k] = 1e-5
        high = local_free_energy(problem, start + nudge, prior.natural).value
        low = local_free_energy(problem, start - nudge, prior.natural).value
        assert (natural - start)[k].item() == pytest.approx(1e-3 * (high - low) / 2e-5, abs=1e-8)
    assert not info.converged
    assert "posterior standard deviations from the fixed point" in info.message


def test_gradient_ascent_draws_the_same_for_every_client_and_seed():
    problem, prior = problem_of(logistic, X, Y)
    first, _ = GradientAscent().solve(hidden(problem), prior.natural, prior.natural, 0)
    second, _ = GradientAscent().solve(hidden(problem), prior.natural, prior.natural, 1)
    exact, _ = GradientAscent().solve(problem, prior.natural, prior.natural, 1)
    assert torch.equal(first, second)
    moved = (exact - prior.natural).norm()
    assert (first - exact).norm() < 0.2 * moved
