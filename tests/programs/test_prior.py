"""Priors become natural parameters, or are refused by the names of their sites."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, LIKE, normal

from pvi.families import Bernoulli, Beta, Categorical, DiagonalGaussian, Dirichlet, FullGaussian, Gamma, Product
from pvi.posterior import Posterior
from pvi.problem import build_problem
from pvi.programs.batch import as_batch
from pvi.programs.guides import FullCovariance, MeanField, PriorFamily, approximation
from pvi.programs.prior import OutsideFamily, find_prior, prior_posterior
from pvi.programs.program import Program
from pvi.programs.recover import DRAWS, factor_parameters, recover, recover_factor, support_points
from pvi.programs.sites import ProgramError, discover

Y = normal(4, seed=1)
COVARIANCE = torch.tensor([[1.0, 0.4], [0.4, 0.5]], dtype=F64)


def observing(sample):
    """The sites of ``sample`` and an observation that the prior does not care for."""

    def model(y):
        value = sample()
        pyro.sample("y", dist.Normal(value, 1.0).expand([len(y)]).to_event(1), obs=y)

    return model


def ask(sample, guide=MeanField(), *data):
    """A program and its approximation, with one batch a client, ready for a question about the prior."""
    model = observing(sample)
    batches = {f"client {index}": as_batch((y,), f"client {index}") for index, y in enumerate(data or (Y,))}
    first = next(iter(batches.values()))
    sites = discover(model, first, "client 0")
    approximating = approximation(guide, sites.shared, first)
    return Program(model, sites, approximating.coordinates), approximating, batches, LIKE


def prior_of(sample, guide=MeanField()):
    return prior_posterior(*ask(sample, guide))


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
    prior = prior_of(lambda: pyro.sample("w", dist.MultivariateNormal(loc, COVARIANCE)).sum(), guide=FullCovariance())
    standard = prior.family.standard(prior.natural)
    torch.testing.assert_close(standard["w.covariance_matrix"], COVARIANCE)
    torch.testing.assert_close(standard["w.loc"], loc)


def test_a_hierarchy_is_gaussian_over_both_sites():
    def sample():
        top = pyro.sample("top", dist.Normal(1.0, 2.0))
        return pyro.sample("low", dist.Normal(top, 0.5))

    prior = prior_of(sample, guide=FullCovariance())
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
@pytest.mark.parametrize("guide", [MeanField(), FullCovariance()], ids=["mean field", "full"])
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


def test_a_prior_outside_the_family_is_an_answer():
    found = find_prior(*ask(lambda: pyro.sample("loc", dist.Laplace(0.0, 1.0))))
    assert isinstance(found, OutsideFamily)
    assert found.residual > 1e-3
    assert "'loc'" in found.message
    assert isinstance(find_prior(*ask(lambda: pyro.sample("loc", dist.Normal(1.0, 2.0)))), Posterior)


@pytest.mark.parametrize("kind", [dist.Normal, dist.Laplace])
def test_clients_share_a_prior_inside_the_family_and_outside(kind):
    def model(y):
        loc = pyro.sample("loc", kind(y.mean(), 1.0))
        pyro.sample("y", dist.Normal(loc, 1.0).expand([len(y)]).to_event(1), obs=y)

    program, approximating, batches, like = ask(lambda: pyro.sample("loc", kind(0.0, 1.0)), MeanField(), Y, Y + 1)
    with pytest.raises(ProgramError, match="the prior depends on the data: client 'client 1'"):
        find_prior(program._replace(model=model), approximating, batches, like)


def conjugate():
    sites = [
        pyro.sample("weights", dist.MultivariateNormal(torch.ones(2, dtype=F64), COVARIANCE)),
        pyro.sample("loc", dist.Normal(1.5, 0.1)),
        pyro.sample("scale", dist.LogNormal(0.2, 0.3)),
        pyro.sample("precision", dist.Gamma(2.0, 3.0)),
        pyro.sample("wait", dist.Exponential(4.0)),
        pyro.sample("chance", dist.Beta(torch.tensor([2.0, 0.5]), 3.0).to_event(1)),
        pyro.sample("mixture", dist.Dirichlet(torch.tensor([1.0, 2.0, 0.5]))),
        pyro.sample("switch", dist.Bernoulli(0.2)),
    ]
    with pyro.plate("groups", 2):
        sites.append(pyro.sample("shares", dist.Dirichlet(torch.tensor([4.0, 2.0]))))
        sites.append(pyro.sample("label", dist.Categorical(torch.tensor([0.2, 0.3, 0.5]))))
    return sum(site.sum() for site in sites)


def test_priors_in_their_own_families():
    prior = prior_of(conjugate, PriorFamily())
    members = dict(zip(prior.family.names, prior.family.members, strict=True))
    assert members == {
        "weights": FullGaussian(2),
        "loc": DiagonalGaussian(1),
        "scale": DiagonalGaussian(1),
        "precision": Gamma(1),
        "wait": Gamma(1),
        "chance": Beta(2),
        "mixture": Dirichlet(3),
        "switch": Bernoulli(1),
        "shares": Dirichlet(2, rows=2),
        "label": Categorical(3, rows=2),
    }
    standard = prior.family.standard(prior.natural)
    expected = {
        "weights.covariance_matrix": COVARIANCE.tolist(),
        "loc.loc": [1.5],
        "scale.scale": [0.3],
        "precision.concentration": [2.0],
        "precision.rate": [3.0],
        "wait.concentration": [1.0],
        "wait.rate": [4.0],
        "chance.concentration1": [2.0, 0.5],
        "chance.concentration0": [3.0, 3.0],
        "mixture.concentration": [[1.0, 2.0, 0.5]],
        "switch.probs": [0.2],
        "shares.concentration": [[4.0, 2.0], [4.0, 2.0]],
        "label.probs": [[0.2, 0.3, 0.5]] * 2,
    }
    for name, value in expected.items():
        torch.testing.assert_close(standard[name], torch.tensor(value, dtype=F64), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (lambda: pyro.sample("rate", dist.Gamma(pyro.sample("shape", dist.Gamma(2.0, 1.0)), 1.0)), "'shape' .Gamma."),
        (lambda: pyro.sample("switch", dist.Bernoulli(pyro.sample("chance", dist.Beta(2.0, 1.0)))), "'chance' .Beta."),
        (
            lambda: pyro.sample("label", dist.Categorical(logits=torch.tensor([0.0, 0.0, -math.inf]))).double(),
            "'label' .Categorical.",
        ),
    ],
    ids=["gamma", "bernoulli", "impossible"],
)
def test_hierarchies_of_own_families_lie_outside(sample, message):
    with pytest.raises(ProgramError, match=message):
        prior_of(sample, PriorFamily())


def test_factors_on_own_supports():
    """The likelihood of counts is a Gamma factor, that of ones and zeros a Beta factor: improper with no data."""
    counts = torch.tensor([3.0, 0.0, 2.0], dtype=F64)
    found = recover_factor(Gamma(1), lambda rate: dist.Poisson(rate).log_prob(counts).sum(), LIKE)
    assert found.exact
    torch.testing.assert_close(found.natural, torch.tensor([5.0, -3.0], dtype=F64))
    torch.testing.assert_close(found.constant, -torch.lgamma(counts + 1).sum())
    outcomes = torch.tensor([1.0, 1.0, 0.0], dtype=F64)
    found = recover_factor(Beta(1), lambda p: dist.Bernoulli(p).log_prob(outcomes).sum(), LIKE)
    assert found.exact
    torch.testing.assert_close(found.natural, torch.tensor([2.0, 1.0], dtype=F64))
    probs = torch.tensor([[0.1, 0.9], [0.6, 0.4], [0.5, 0.5]], dtype=F64)
    data = torch.tensor([0, 1, 1])
    found = recover_factor(
        Categorical(3), lambda k: dist.Categorical(probs[k.long()].expand(3, 2)).log_prob(data).sum(), LIKE
    )
    assert found.exact
    log_likelihood = probs[:, data].log().sum(1)
    torch.testing.assert_close(found.natural, log_likelihood[:2] - log_likelihood[2])
    torch.testing.assert_close(found.constant, log_likelihood[2])
    shares = dist.Dirichlet(torch.tensor([1.0, 2.0, 3.0], dtype=F64))
    assert recover(Dirichlet(3), shares.log_prob, LIKE).exact
    for family, factor in (
        (Gamma(1), lambda rate: dist.LogNormal(LIKE, LIKE + 1).log_prob(rate).sum()),
        (Beta(1), lambda p: dist.Binomial(3, p.square()).log_prob(LIKE + 2).sum()),
        (Dirichlet(3), lambda x: shares.log_prob(x) + 1e-4 * x[0] * x[1]),
        (Bernoulli(2), lambda x: 0.3 * x[0] - 1.2 * x[1] + 1e-4 * x[0] * x[1]),
    ):
        assert not recover_factor(family, factor, LIKE).exact


@pytest.mark.parametrize("family", [Gamma(2), Beta(2), Dirichlet(3), Categorical(3, 2), Bernoulli(2)], ids=repr)
def test_factors_on_own_supports_are_differentiable(family):
    """∂η/∂scale of the factor scale · η·T(x) is η."""
    natural = family.natural_from_free(0.5 * normal(family.num_free, seed=3))

    def parameters(scale):
        return factor_parameters(family, lambda x: scale * ((natural * family.statistics(x)).sum() + 2), LIKE)

    slope, constant = torch.func.jacrev(parameters)(LIKE + 0.7)
    torch.testing.assert_close(slope, natural)
    assert constant.item() == pytest.approx(2.0)
