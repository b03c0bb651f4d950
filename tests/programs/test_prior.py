"""Priors become natural parameters, or are refused by the names of their sites."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, LIKE, normal, problem_of

from pvi.families import DiagonalGaussian, FullGaussian, Product
from pvi.posterior import Posterior
from pvi.problem import build_problem
from pvi.programs.prior import OutsideFamily, find_prior, prior_posterior
from pvi.programs.recover import DRAWS, factor_parameters, recover, recover_factor, support_points
from pvi.programs.sites import ProgramError

Y = normal(4, seed=1)
COVARIANCE = torch.tensor([[1.0, 0.4], [0.4, 0.5]], dtype=F64)


def observing(sample):
    """The sites of ``sample`` and an observation that the prior does not care for."""

    def model(y):
        value = sample()
        pyro.sample("y", dist.Normal(value, 1.0).expand([len(y)]).to_event(1), obs=y)

    return model


def prior_of(sample, guide=None):
    return problem_of(observing(sample), Y, guide=guide)[1]


def test_normal_and_log_normal():
    def sample():
        loc = pyro.sample("loc", dist.Normal(1.5, 0.1))
        return loc + pyro.sample("scale", dist.LogNormal(-0.5, 2.0))

    standard = prior_of(sample).family.standard(prior_of(sample).natural)
    for name, value in {"loc.loc": 1.5, "loc.scale": 0.1, "scale.loc": -0.5, "scale.scale": 2.0}.items():
        torch.testing.assert_close(standard[name], torch.tensor([value], dtype=F64), rtol=1e-9, atol=0)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_scales(scale):
    prior = prior_of(lambda: pyro.sample("loc", dist.Normal(3 * scale, scale)))
    torch.testing.assert_close(prior.mean["loc"].item(), 3 * scale, rtol=1e-6, atol=0)
    torch.testing.assert_close(prior.sd["loc"].item(), scale, rtol=1e-6, atol=0)


def test_full_covariance_priors():
    loc = torch.tensor([1.0, -2.0], dtype=F64)
    prior = prior_of(lambda: pyro.sample("w", dist.MultivariateNormal(loc, COVARIANCE)).sum(), guide="full")
    standard = prior.family.standard(prior.natural)
    torch.testing.assert_close(standard["w.covariance_matrix"], COVARIANCE)
    torch.testing.assert_close(standard["w.loc"], loc)


def test_a_hierarchy_is_gaussian_over_both_sites():
    def sample():
        top = pyro.sample("top", dist.Normal(1.0, 2.0))
        return pyro.sample("low", dist.Normal(top, 0.5))

    prior = prior_of(sample, guide="full")
    standard = prior.family.standard(prior.natural)
    expected = torch.tensor([[4.0, 4.0], [4.0, 4.25]], dtype=F64)
    torch.testing.assert_close(standard["top+low.covariance_matrix"], expected)
    torch.testing.assert_close(standard["top+low.loc"], torch.ones(2, dtype=F64))
    with pytest.raises(ProgramError, match=r"prior of .*'top'.*'low'.*independent of other sites unless"):
        prior_of(sample)


def test_the_prior_is_the_density_of_the_model():
    def sample():
        loc = pyro.sample("loc", dist.Normal(1.5, 0.1))
        return loc + pyro.sample("scale", dist.LogNormal(-0.5, 2.0))

    values = {"loc": torch.tensor(1.4, dtype=F64), "scale": torch.tensor(0.7, dtype=F64)}
    expected = dist.Normal(1.5, 0.1).log_prob(values["loc"]) + dist.LogNormal(-0.5, 2.0).log_prob(values["scale"])
    torch.testing.assert_close(prior_of(sample).log_prob(values), expected)


@pytest.mark.parametrize(
    ("distribution", "kind"),
    [
        (lambda: dist.Laplace(0.0, 1.0), "Laplace"),
        (lambda: dist.HalfCauchy(1.0), "HalfCauchy"),
        (lambda: dist.HalfNormal(1.0), "HalfNormal"),
        (lambda: dist.Gamma(2.0, 1.0), "Gamma"),
        (lambda: dist.StudentT(4.0, 0.0, 1.0), "StudentT"),
        (lambda: dist.Uniform(0.0, 1.0), "Uniform"),
        (lambda: dist.Beta(2.0, 2.0), "Beta"),
        (lambda: dist.Cauchy(0.0, 1.0), "Cauchy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("guide", [None, "full"])
def test_other_priors_are_refused_by_name(distribution, kind, guide):
    def sample():
        fine = pyro.sample("fine", dist.Normal(0.0, 1.0))
        return fine + pyro.sample("odd", distribution())

    with pytest.raises(ProgramError, match=rf"the prior of .*'.*odd' .*{kind}.* does not lie in the guide's family"):
        prior_of(sample, guide)


def test_only_the_odd_site_is_blamed():
    def sample():
        fine = pyro.sample("fine", dist.Normal(3.0, 0.2))
        return fine + pyro.sample("odd", dist.Laplace(0.0, 1.0))

    with pytest.raises(ProgramError) as caught:
        prior_of(sample)
    assert "'odd' (Laplace)" in str(caught.value)
    assert "'fine'" not in str(caught.value)


def test_a_full_covariance_prior_does_not_fit_mean_field():
    with pytest.raises(ProgramError, match=r"prior of 'w' \(MultivariateNormal\) does not lie in the guide's family"):
        prior_of(lambda: pyro.sample("w", dist.MultivariateNormal(torch.zeros(2, dtype=F64), COVARIANCE)).sum())


def test_a_prior_that_depends_on_the_data_is_refused():
    def model(y):
        loc = pyro.sample("loc", dist.Normal(y.mean(), 1.0))
        pyro.sample("y", dist.Normal(loc, 1.0).expand([len(y)]).to_event(1), obs=y)

    with pytest.raises(ProgramError, match="the prior depends on the data: client 'second'"):
        build_problem(model, {"first": (Y,), "second": (Y + 1,)}, None, torch.device("cpu"), None)


def test_recover_tells_members_from_others():
    one = DiagonalGaussian(1)
    exact = recover(one, lambda x: dist.Normal(LIKE + 2, LIKE + 0.5).log_prob(x).sum(), LIKE)
    assert exact.exact
    torch.testing.assert_close(exact.natural, torch.tensor([8.0, -2.0], dtype=F64))
    assert not recover(one, lambda x: dist.Normal(LIKE + 2, LIKE + 0.5).log_prob(x).sum() + 1e-3, LIKE).exact
    assert not recover(one, lambda x: dist.StudentT(LIKE + 50).log_prob(x).sum(), LIKE).exact
    assert not recover(one, lambda x: x.square().sum(), LIKE).exact
    # Quadratic near the origin only: a clamp far out is seen, and so is a density cut at a bound.
    assert not recover(one, lambda x: dist.Normal(LIKE, LIKE + 1).log_prob(x.clamp(-1.2, 1.2)).sum(), LIKE).exact
    two = FullGaussian(2)
    assert recover(two, lambda x: dist.MultivariateNormal(x.new_ones(2), COVARIANCE).log_prob(x), LIKE).exact
    assert not recover(
        DiagonalGaussian(2), lambda x: dist.MultivariateNormal(x.new_ones(2), COVARIANCE).log_prob(x), LIKE
    ).exact


def test_prior_posterior_in_single_precision():
    built = build_problem(
        observing(lambda: pyro.sample("loc", dist.Normal(1.5, 0.1))), [(Y.float(),)], None, torch.device("cpu"), None
    )
    problem = built.clients["client 0"]
    prior = prior_posterior(problem.program, problem.approximation, {"a": problem.batch}, LIKE.float())
    assert prior.natural.dtype == torch.float32
    torch.testing.assert_close(prior.mean["loc"].item(), 1.5, rtol=1e-4, atol=0)


def test_factors_are_recovered_with_their_constant():
    """An improper factor: a quadratic that opens upwards in one direction."""
    two = FullGaussian(2)
    matrix = torch.tensor([[2.0, 1.0], [1.0, -3.0]], dtype=F64)

    def log_factor(x):
        return 0.7 + x.sum() - 0.5 * x @ matrix @ x

    found = recover_factor(two, log_factor, LIKE)
    assert found.exact
    assert not bool(two.is_proper(found.natural))
    torch.testing.assert_close(two.precision_matrix(found.natural), matrix)
    torch.testing.assert_close(found.constant, LIKE + 0.7)
    # Not in the smaller family, nor with a term of higher order, nor where it bends only far out.
    for family, factor in (
        (DiagonalGaussian(2), log_factor),
        (two, lambda x: log_factor(x) + 1e-6 * x[0] ** 3),
        (two, lambda x: log_factor(x) + (x[0] - 1.2).clamp(min=0) * 1e-3),
    ):
        assert not recover_factor(family, factor, LIKE).exact


def test_factors_are_differentiable_in_what_they_close_over():
    one = DiagonalGaussian(1)
    x = torch.tensor([0.3, -1.0, 0.4], dtype=F64)

    def parameters(scale):
        return factor_parameters(one, lambda loc: dist.Normal(loc, scale).log_prob(x).sum(), LIKE)

    scale = LIKE + 0.7
    natural, constant = parameters(scale)
    torch.testing.assert_close(natural, torch.stack([x.sum(), LIKE - 1.5]) / scale**2)
    d_natural = torch.func.jacrev(lambda scale: parameters(scale)[0])(scale)
    torch.testing.assert_close(d_natural, -2 * natural / scale)
    # c = Σ log N(x_i; 0, scale²), whose derivative is Σ x_i²/scale³ - 3/scale.
    expected = (x.square().sum() / scale**3 - 3 / scale).item()
    assert torch.func.grad(lambda scale: parameters(scale)[1])(scale).item() == pytest.approx(expected)
    assert constant.item() == pytest.approx(dist.Normal(LIKE, scale).log_prob(x).sum().item())


def test_the_points_of_the_check_reach_far():
    points = support_points(Product(("a", "b"), (DiagonalGaussian(3), FullGaussian(2))), LIKE)
    assert points.shape == (DRAWS, 5)
    assert torch.equal(points[: DRAWS // 2], -points[DRAWS // 2 :])
    assert points[0].abs().max() < 1
    assert points.abs().max() > 2
    assert DRAWS >= 8


def outside(sample):
    problem, _ = problem_of(observing(lambda: pyro.sample("loc", dist.Normal(0.0, 1.0))), Y)
    program = problem.program._replace(model=observing(sample))
    return find_prior(program, problem.approximation, {"a": problem.batch}, LIKE)


def test_a_prior_outside_the_family_is_an_answer():
    found = outside(lambda: pyro.sample("loc", dist.Laplace(0.0, 1.0)))
    assert isinstance(found, OutsideFamily)
    assert found.residual > 1e-3
    assert "'loc'" in found.message
    assert isinstance(outside(lambda: pyro.sample("loc", dist.Normal(1.0, 2.0))), Posterior)


def test_clients_share_a_prior_outside_the_family_too():
    def model(y):
        loc = pyro.sample("loc", dist.Laplace(y.mean(), 1.0))
        pyro.sample("y", dist.Normal(loc, 1.0).expand([len(y)]).to_event(1), obs=y)

    problem, _ = problem_of(observing(lambda: pyro.sample("loc", dist.Normal(0.0, 1.0))), Y)
    program = problem.program._replace(model=model)
    batches = {"first": problem.batch, "second": problem.batch._replace(args=(Y + 1,))}
    with pytest.raises(ProgramError, match="the prior depends on the data: client 'second'"):
        find_prior(program, problem.approximation, batches, LIKE)
