"""Newton's optimum: stationary by finite differences, equal to the independent references, from anywhere."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from oracles import LocalObjective, global_vi
from oracles.vi import maximise
from toy_programs import F64, normal, problem_of, unknown_noise

from pvi.blocks import gather
from pvi.families import FullGaussian
from pvi.objectives import expected_log_likelihood, local_free_energy, regulariser
from pvi.solvers import Newton, NotExactError, curvature, default_solver
from pvi.solvers.newton_state import clients_of, init
from pvi.solvers.newton_step import step
from pvi.solvers.svi import SVI

X = normal(40, 3, seed=1) @ torch.tensor([[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 0.9]], dtype=F64)
TRUTH = torch.tensor([0.8, -0.5, 0.3], dtype=F64)


def outcomes(kind):
    f = X @ TRUTH
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        if kind == "bernoulli":
            return torch.bernoulli(f.sigmoid())
        if kind == "poisson":
            return torch.poisson(f.exp())
        return f + 0.5 * dist.StudentT(2.0).sample((40,)).to(F64)


def model_of(kind):
    def likelihood(f):
        if kind == "bernoulli":
            return dist.Bernoulli(logits=f)
        if kind == "poisson":
            return dist.Poisson(f.exp())
        return dist.StudentT(4.0, f, 0.5)

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", likelihood(x @ weights), obs=y)

    return model


def solved(kind, guide=None, rows=40):
    problem, prior = problem_of(model_of(kind), X[:rows], outcomes(kind)[:rows], guide=guide)
    natural, info = Newton().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged, info
    return problem, prior.natural, natural, info


KINDS = ["bernoulli", "poisson", "student"]
GUIDES = [None, "full"]


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_free_energy_is_stationary_by_finite_differences(kind, guide):
    """In units of natural steps."""
    problem, cavity, natural, _ = solved(kind, guide)
    family = problem.family
    free, scale = family.free(natural), family.free_scale(natural)

    def free_energy(offset):
        moved = family.natural_from_free(free + scale * offset)
        likelihood = expected_log_likelihood(problem, moved).value
        return likelihood + regulariser(family, moved, cavity).item()

    best, width = free_energy(torch.zeros_like(free)), 1e-4
    for direction in torch.eye(len(free), dtype=F64):
        up, down = free_energy(width * direction), free_energy(-width * direction)
        assert abs(up - down) / (2 * width) < 1e-5
        # And a maximum: the curvature in natural steps is of order one.
        wide = free_energy(0.1 * direction), free_energy(-0.1 * direction)
        assert max(wide) < best


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_the_optimum_is_the_references(kind, guide):
    problem, cavity, natural, info = solved(kind, guide)
    covariance = "full" if guide else "diagonal"
    expected = global_vi(X.numpy(), outcomes(kind).numpy(), kind, covariance=covariance, num_nodes=64)
    np.testing.assert_allclose(problem.family.location(natural).numpy(), expected.mean, rtol=1e-6, atol=1e-7)
    found = problem.family.standard(natural)
    found = found["weights.covariance_matrix"] if guide else found["weights.scale"].square()
    np.testing.assert_allclose(found.numpy(), expected.covariance, rtol=1e-6, atol=1e-9)
    # The cavity is the prior without its normaliser here.
    evidence = info.free_energy - problem.family.log_partition(cavity).item()
    assert evidence == pytest.approx(expected.elbo, abs=1e-7)


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_does_not_depend_on_the_start(kind, guide):
    problem, cavity, natural, info = solved(kind, guide)
    family = problem.family
    for factor, shift in ((0.05, 2.0), (400.0, -1.0), (1.0, 0.0)):
        start = family.relocate(factor * cavity, shift * torch.ones(3, dtype=F64))
        found, other = Newton(max_steps=300).solve(problem, cavity, start, 0)
        assert other.converged, (factor, shift, other)
        torch.testing.assert_close(other.free_energy, info.free_energy, rtol=0, atol=1e-8)
        torch.testing.assert_close(found, natural, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_improper_cavities(kind, guide):
    """One direction has negative precision: the likelihood makes the tilted distribution proper."""
    problem, prior, _, _ = solved(kind, guide)
    family = problem.family
    taken = family.quadratic(
        torch.tensor([0.3, 0.0, -0.2], dtype=F64),
        torch.eye(3, dtype=F64),
        torch.tensor([1.2, 0.5, 0.0], dtype=F64),
        torch.zeros(3, dtype=F64),
    )
    cavity = prior - taken
    assert not bool(family.is_proper(cavity))
    natural, info = Newton().solve(problem, cavity, prior, 0)
    assert info.converged, info
    precision = family.precision_matrix(cavity).numpy()
    h = torch.func.grad(lambda x: (cavity * family.statistics(x)).sum())(torch.zeros(3, dtype=F64)).numpy()
    objective = LocalObjective(X.numpy(), outcomes(kind).numpy(), h, precision, kind, 1.0, 64)
    spread = np.eye(3) * 0.1 if guide else np.full(3, 0.1)
    mean, covariance, _ = maximise(objective, np.zeros(3), spread)
    np.testing.assert_allclose(family.location(natural).numpy(), mean, rtol=1e-5, atol=1e-6)
    found = family.variance(natural).numpy()
    np.testing.assert_allclose(found, np.diag(covariance) if guide else covariance, rtol=1e-5)


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_step_lowers_the_free_energy(kind, guide):
    problem, prior = problem_of(model_of(kind), X, outcomes(kind), guide=guide)
    start = problem.family.relocate(0.1 * prior.natural, 3 * torch.ones(3, dtype=F64))
    clients = clients_of(problem.family, gather([problem], None)[1], prior.natural[None])
    state = init(clients, start[None])
    for _ in range(12):
        new, info = step(state, clients, torch.tensor([True]))
        assert new.free_energy >= state.free_energy - 1e-9
        assert 0 <= info.step <= 1
        assert bool(problem.family.is_proper(new.natural).all())
        state = new


def test_a_single_row_and_more_features_than_rows():
    for rows in (1, 2):
        problem, cavity, natural, _ = solved("bernoulli", "full", rows=rows)
        assert local_free_energy(problem, natural, cavity).value > local_free_energy(problem, cavity, cavity).value


def test_single_precision():
    problem, prior, natural, _ = solved("bernoulli")
    from pvi.problem import build_problem

    built = build_problem(
        model_of("bernoulli"), [(X.float(), outcomes("bernoulli").float())], None, torch.device("cpu"), None
    )
    found, info = Newton().solve(built.clients["client 0"], prior.float(), prior.float(), 0)
    assert info.converged, info
    assert found.dtype == torch.float32
    loc, expected = problem.family.location(found), problem.family.location(natural)
    torch.testing.assert_close(loc.double(), expected, rtol=1e-3, atol=1e-4)


def test_unscaled_columns():
    """Columns five orders of magnitude apart: coefficients scale back."""
    scales = torch.tensor([1e-2, 1.0, 1e3], dtype=F64)

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1 / scales).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    problem, prior = problem_of(model, X * scales, outcomes("bernoulli"))
    natural, info = Newton().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged, info
    _, _, expected, _ = solved("bernoulli")
    torch.testing.assert_close(
        problem.family.location(natural) * scales, problem.family.location(expected), rtol=1e-6, atol=1e-8
    )


def test_running_out_of_steps_is_said():
    problem, prior = problem_of(model_of("bernoulli"), X, outcomes("bernoulli"))
    _, info = Newton(max_steps=1).solve(problem, prior.natural, prior.natural, 0)
    assert not info.converged
    assert info.message == "not converged after 1 steps"
    assert info.steps == 1


def test_other_models_are_refused_with_the_reason():
    problem, prior = problem_of(unknown_noise, normal(5))
    with pytest.raises(NotExactError, match="client 'client 0': Newton needs a generalised linear model, but its"):
        Newton().solve(problem, prior.natural, prior.natural, 0)
    assert isinstance(default_solver([problem]), SVI)
    exact, _ = problem_of(model_of("bernoulli"), X, outcomes("bernoulli"))
    assert isinstance(default_solver([exact]), Newton)
    assert isinstance(default_solver([exact, problem]), SVI)


def test_a_marked_probit_is_solved_exactly():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        f = pyro.deterministic("linear_predictor", x @ weights)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(torch.special.ndtr(f)), obs=y)

    problem, prior = problem_of(model, X, outcomes("bernoulli"), guide="full")
    assert isinstance(problem.family.members[0], FullGaussian)
    natural, info = Newton().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged, info
    free, scale = problem.family.free(natural), problem.family.free_scale(natural)
    for direction in 1e-4 * torch.eye(len(free), dtype=F64):
        ends = [problem.family.natural_from_free(free + sign * scale * direction) for sign in (1, -1)]
        up, down = (local_free_energy(problem, end, prior.natural).value for end in ends)
        assert abs(up - down) / 2e-4 < 1e-5


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("scale", [2.0, 5.0, 30.0])
def test_wide_priors_of_exponential_rates(scale, guide):
    """Under the prior E[exp f] is 1e50 or infinite: the solve must not end in a collapsed q."""

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), scale).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Poisson((x @ weights).exp()), obs=y)

    problem, prior = problem_of(model, X, outcomes("poisson"), guide=guide)
    natural, info = Newton().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged, info
    covariance = "full" if guide else "diagonal"
    expected = global_vi(X.numpy(), outcomes("poisson").numpy(), "poisson", 0.0, scale**-2, covariance)
    np.testing.assert_allclose(problem.family.location(natural).numpy(), expected.mean, rtol=1e-5, atol=1e-6)


def robust(likelihood):
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", likelihood(x @ weights), obs=y)

    return model


def test_a_likelihood_with_a_kink_is_left_to_svi():
    problem, _ = problem_of(robust(lambda f: dist.Laplace(f, 0.5)), X, X @ TRUTH + 0.5 * normal(40, seed=4))
    assert default_solver([problem]).name == "SVI"


def test_a_narrow_likelihood_that_is_not_log_concave():
    problem, prior = problem_of(robust(lambda f: dist.StudentT(4.0, f, 0.1)), X, X @ TRUTH + 0.1 * normal(40, seed=4))
    _, info = Newton().solve(problem, prior.natural, prior.natural, 0)
    assert info.converged, info


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hessian_used_again_changes_neither_the_optimum_nor_the_steps(kind, guide, monkeypatch):
    problem, cavity, natural, info = solved(kind, guide)
    monkeypatch.setattr(curvature, "STALE", -1.0)
    fresh, other = Newton().solve(problem, cavity, cavity, 0)
    # 1e-6 standard deviations, the solver's tolerance.
    free, scale = problem.family.free(natural), problem.family.free_scale(natural)
    assert ((problem.family.free(fresh) - free) / scale).abs().max() < 1e-6
    assert abs(other.steps - info.steps) <= 1


def test_the_tolerance_is_in_standard_deviations():
    problem, cavity, natural, _ = solved("bernoulli")
    exact, _ = Newton(tolerance=1e-11).solve(problem, cavity, natural, 0)
    free, scale = problem.family.free(exact), problem.family.free_scale(exact)
    for tolerance in (1e-3, 1e-6):
        rough, info = Newton(tolerance=tolerance).solve(problem, cavity, cavity, 0)
        assert info.converged
        assert ((problem.family.free(rough) - free) / scale).abs().max() < tolerance
