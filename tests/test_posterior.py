"""q(θ) over real, positive, bounded, simplex and correlation sites: samples, moments, densities, marginals."""

import math

import pytest
import torch
from torch import distributions as dist
from torch.distributions import constraints

from pvi.families import (
    Bernoulli,
    Beta,
    Categorical,
    Coordinates,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    Product,
    own_coordinates,
    site_coordinates,
)
from pvi.posterior import ImproperError, Posterior

DRAWS = 20_000
F64 = torch.float64
SITES = {
    "weights": ((3,), constraints.real),
    "matrix": ((2, 2), constraints.real),
    "scale": ((), constraints.positive),
    "rates": ((2,), constraints.positive),
    "bounded": ((), constraints.interval(-1.0, 3.0)),
    "share": ((), constraints.unit_interval),
    "simplex": ((3,), constraints.simplex),
    "correlation": ((3, 3), constraints.corr_cholesky),
}
COORDINATES = {name: site_coordinates(name, shape, support) for name, (shape, support) in SITES.items()}


def posterior(*names, full=False, seed=0, dtype=torch.float64):
    """A posterior of moderate spread over the sites, independent or with one full covariance."""
    coordinates = Coordinates(tuple(COORDINATES[name] for name in names))
    if full:
        family = Product(("+".join(names),), (FullGaussian(coordinates.size),))
    else:
        family = Product(names, tuple(DiagonalGaussian(site.size) for site in coordinates.sites))
    generator = torch.Generator().manual_seed(seed)
    # A row of the Cholesky factor adds up: log-normal sites must keep moments that draws can estimate.
    spread = 0.4 / coordinates.size**0.5 if full else 0.4
    free = spread * torch.randn(family.num_free, generator=generator, dtype=torch.float64)
    return Posterior(family, family.natural_from_free(free - (0.0 if full else 0.3)).to(dtype), coordinates)


ALL = tuple(SITES)


@pytest.mark.parametrize("full", [False, True], ids=["mean field", "full"])
def test_samples_have_the_sites_shapes_and_supports(full):
    q = posterior(*ALL, full=full)
    draws = q.sample(7, torch.Generator().manual_seed(1))
    assert q.site_names == ALL
    assert list(draws) == list(ALL)
    for name, (shape, support) in SITES.items():
        assert draws[name].shape == (7, *shape)
        assert bool(support.check(draws[name]).all())
    again = q.sample(7, torch.Generator().manual_seed(1))
    assert all(torch.equal(draws[name], again[name]) for name in ALL)


@pytest.mark.parametrize("full", [False, True], ids=["mean field", "full"])
@pytest.mark.parametrize("name", ALL)
def test_moments_against_draws(name, full):
    q = posterior(*ALL, full=full)
    draws = q.sample(DRAWS, torch.Generator().manual_seed(2))[name]
    mean, sd = q.moments(name)
    assert mean.shape == sd.shape == SITES[name][0]
    # Simplex and correlation moments are themselves Monte Carlo, from 4,096 draws.
    noise = 1 if COORDINATES[name].is_real or COORDINATES[name].is_elementwise else 1 + DRAWS / 4096
    centred = draws - draws.mean(0)
    error = (noise * centred.square().mean(0) / DRAWS).sqrt()
    assert bool(((draws.mean(0) - mean).abs() <= 5 * error + 1e-12).all())
    squares = centred.square()
    error = (noise * squares.var(0) / DRAWS).sqrt()
    assert bool(((squares.mean(0) - sd.square()).abs() <= 5 * error + 1e-12).all())
    assert torch.equal(q.mean[name], mean)
    assert torch.equal(q.sd[name], sd)


def test_log_normal_moments_are_exact():
    q = posterior("scale")
    loc, scale = q.family.members[0].standard(q.natural).values()
    mean = (loc + scale.square() / 2).exp()
    sd = mean * (scale.square().exp() - 1).sqrt()
    torch.testing.assert_close(q.mean["scale"], mean[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(q.sd["scale"], sd[0], rtol=1e-9, atol=0)


@pytest.mark.parametrize(("name", "low", "high"), [("scale", 1e-9, 60.0), ("bounded", -1.0, 3.0), ("share", 0.0, 1.0)])
def test_densities_over_constrained_sites_integrate_to_one(name, low, high):
    q = posterior(name)
    edges = torch.linspace(low, high, 400_001, dtype=torch.float64)
    points = (edges[1:] + edges[:-1]) / 2
    density = q.log_prob({name: points}).exp()
    total = density.sum() * (edges[1] - edges[0])
    assert total.item() == pytest.approx(1.0, abs=1e-6)
    mean = (points * density).sum() * (edges[1] - edges[0])
    assert mean.item() == pytest.approx(q.mean[name].item(), rel=1e-5)


def test_simplex_density_integrates_to_one():
    """Over (θ_1, θ_2): the stick-breaking bijection's Jacobian is with respect to the first K - 1 coordinates."""
    q = posterior("simplex")
    edges = torch.linspace(0, 1, 1_001, dtype=torch.float64)
    points = (edges[1:] + edges[:-1]) / 2
    first, second = torch.meshgrid(points, points, indexing="ij")
    inside = first + second < 1 - 1e-9
    first, second = first[inside], second[inside]
    values = torch.stack([first, second, 1 - first - second], -1)
    total = q.log_prob({"simplex": values}).exp().sum() * (edges[1] - edges[0]) ** 2
    assert total.item() == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("full", [False, True], ids=["mean field", "full"])
def test_log_prob_accepts_leading_axes(full):
    q = posterior(*ALL, full=full)
    draws = q.sample(6, torch.Generator().manual_seed(3))
    log_q = q.log_prob(draws)
    assert log_q.shape == (6,)
    one = torch.stack([q.log_prob({name: value[k] for name, value in draws.items()}) for k in range(6)])
    torch.testing.assert_close(log_q, one)
    grid = q.log_prob({name: value.reshape(2, 3, *value.shape[1:]) for name, value in draws.items()})
    torch.testing.assert_close(grid.reshape(6), log_q)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_joint_density_is_the_product_of_independent_marginals(dtype):
    names = tuple(name for name in ALL if name != "correlation")
    q = posterior(*names, dtype=dtype)
    draws = q.sample(5, torch.Generator().manual_seed(4))
    total = sum(q.marginal(name).log_prob(draws[name]) for name in names)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(q.log_prob(draws), total, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("full", [False, True], ids=["mean field", "full"])
@pytest.mark.parametrize("name", ALL)
def test_marginals_are_distributions_over_the_site(name, full):
    q = posterior(*ALL, full=full)
    marginal = q.marginal(name)
    shape, support = SITES[name]
    assert tuple(marginal.batch_shape) == ()
    assert tuple(marginal.event_shape) == shape
    draws = q.sample(DRAWS, torch.Generator().manual_seed(5))[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        own = marginal.sample((DRAWS,))
    assert own.shape == (DRAWS, *shape)
    assert bool(support.check(own).all())
    # The two samples have the same mean of the value and of its square.
    for statistic in (lambda v: v, torch.square):
        a, b = statistic(draws), statistic(own)
        error = ((a.var(0) + b.var(0)) / DRAWS).sqrt()
        assert bool(((a.mean(0) - b.mean(0)).abs() <= 5 * error + 1e-12).all())
    # Its density is normalised: E_own[q_alone / q_own] = 1, where alone is the same site's posterior by itself.
    alone = Posterior(
        Product((name,), (q._marginal(name)[1],)), q._marginal(name)[2], Coordinates((COORDINATES[name],))
    )
    torch.testing.assert_close(marginal.log_prob(draws[:50]), alone.log_prob({name: draws[:50]}), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("full", [False, True], ids=["mean field", "full"])
def test_entropy_and_divergence_against_draws(full):
    q, p = posterior(*ALL, full=full), posterior(*ALL, full=full, seed=1)
    draws = q.sample(DRAWS, torch.Generator().manual_seed(7))
    difference = q.log_prob(draws) - p.log_prob(draws)
    error = difference.std() / math.sqrt(DRAWS)
    assert abs(difference.mean() - q.kl(p)) <= 5 * error
    assert q.kl(q).item() == pytest.approx(0.0, abs=1e-10)
    x = q.coordinates.unconstrain(draws)
    log_density = q.log_prob(draws) + q.coordinates.log_abs_det_jacobian(x)
    error = log_density.std() / math.sqrt(DRAWS)
    assert abs(-log_density.mean() - q.entropy()) <= 5 * error


def test_naturals_by_site():
    q = posterior("weights", "scale")
    assert {name: len(part) for name, part in q.natural_by_site.items()} == {"weights": 6, "scale": 2}
    assert list(posterior("weights", "scale", full=True).natural_by_site) == ["weights+scale"]


def test_unknown_sites_are_named():
    q = posterior("weights", "scale")
    for ask in (q.marginal, q.moments):
        with pytest.raises(KeyError, match=r"no shared site 'wieghts'; there are \['weights', 'scale'\]"):
            ask("wieghts")
    with pytest.raises(KeyError, match=r"no value for the shared sites \['scale'\]"):
        q.log_prob({"weights": torch.zeros(3)})


def test_divergences_between_different_posteriors_are_refused():
    with pytest.raises(ValueError, match="posteriors over different sites"):
        posterior("weights").kl(posterior("scale"))
    with pytest.raises(ValueError, match="posteriors of different families"):
        posterior("weights").kl(posterior("weights", full=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.0])
def test_improper_naturals_raise_and_name_the_site(value):
    q = posterior("weights", "scale")
    natural = q.natural.clone()
    natural[-1] = value
    with pytest.raises(ImproperError, match="natural parameters of scale are improper"):
        Posterior(q.family, natural, q.coordinates)


def test_a_site_without_a_bijection_is_named():
    with pytest.raises(ValueError, match="site 'k': no bijection from the reals onto its support"):
        site_coordinates("k", (), constraints.nonnegative_integer)


@pytest.mark.parametrize("name", ALL)
def test_coordinates_round_trip_with_their_jacobian(name):
    site = COORDINATES[name]
    u = torch.randn(4, site.size, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    value = site.constrain(u)
    assert value.shape == (4, *SITES[name][0])
    torch.testing.assert_close(site.unconstrain(value), u)
    if site.is_elementwise:
        jacobian = torch.func.vmap(torch.func.jacrev(lambda u: site.constrain(u).reshape(-1)))(u)
        expected = torch.linalg.slogdet(jacobian).logabsdet
        torch.testing.assert_close(site.log_abs_det_jacobian(u), expected)


OWN = {
    "rates": ((2,), constraints.positive, Gamma(2), dist.Gamma),
    "precision": ((), constraints.nonnegative, Gamma(1), dist.Gamma),
    "chances": ((2, 2), constraints.unit_interval, Beta(4), dist.Beta),
    "mixture": ((3,), constraints.simplex, Dirichlet(3), dist.Dirichlet),
    "rows": ((2, 3), constraints.simplex, Dirichlet(3, rows=2), dist.Dirichlet),
    "switch": ((), constraints.boolean, Bernoulli(1), dist.Bernoulli),
    "labels": ((2, 2), constraints.independent(constraints.integer_interval(0, 2), 2), Categorical(3, 4), None),
    "weights": ((2,), constraints.real, FullGaussian(2), None),
}
OWN_COORDINATES = {name: own_coordinates(name, *value[:2]) for name, value in OWN.items()}


def mixed(dtype=F64, seed=0):
    """A posterior of one site of each family, in the sites' own spaces."""
    family = Product(tuple(OWN), tuple(value[2] for value in OWN.values()))
    free = 0.4 * torch.randn(family.num_free, generator=torch.Generator().manual_seed(seed), dtype=F64)
    coordinates = Coordinates(tuple(OWN_COORDINATES.values()))
    return Posterior(family, family.natural_from_free(free).to(dtype), coordinates)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_families_on_their_own_supports(dtype):
    q = mixed(dtype)
    draws = q.sample(DRAWS, torch.Generator().manual_seed(1))
    wanted = {name: torch.long if name == "labels" else dtype for name in OWN}
    assert {name: value.dtype for name, value in draws.items()} == wanted
    for name, (shape, support, _, _) in OWN.items():
        value = draws[name].to(dtype)
        assert value.shape == (DRAWS, *shape)
        assert bool(support.check(draws[name]).all())
        mean, sd = q.moments(name)
        assert mean.shape == sd.shape == shape
        error = value.std(0) / DRAWS**0.5
        assert bool(((value.mean(0) - mean).abs() <= 5 * error).all())
        squares = (value - mean).square()
        assert bool(((squares.mean(0) - sd.square()).abs() <= 5 * squares.std(0) / DRAWS**0.5 + 1e-6).all())
        marginal = q.marginal(name)
        assert tuple(marginal.event_shape) == shape
        assert tuple(marginal.batch_shape) == ()
        if name != "labels":  # torch has no moments of an index
            torch.testing.assert_close(marginal.mean, mean)
            torch.testing.assert_close(marginal.variance, sd.square())


def test_densities_on_own_supports_are_those_of_the_marginals():
    q = mixed()
    draws = q.sample(6, torch.Generator().manual_seed(2))
    expected = torch.stack([q.marginal(name).log_prob(value) for name, value in draws.items()]).sum(0)
    torch.testing.assert_close(q.log_prob(draws), expected)
    torch.testing.assert_close(q.log_prob({name: value[0] for name, value in draws.items()}), expected[0])
    entropy = sum(q.marginal(name).entropy() for name in OWN)
    torch.testing.assert_close(q.entropy(), entropy)
    p = mixed(seed=1)
    divergence = sum(torch.distributions.kl_divergence(q.marginal(name), p.marginal(name)) for name in OWN)
    torch.testing.assert_close(q.kl(p), divergence)


def test_marginals_of_own_supports_are_stock_distributions():
    q = mixed()
    for name, (_, _, family, kind) in OWN.items():
        marginal = q.marginal(name)
        while isinstance(marginal, torch.distributions.Independent):
            marginal = marginal.base_dist
        if kind is not None and family.size == math.prod(OWN[name][0]):
            assert isinstance(marginal, kind), name
    assert isinstance(q.marginal("precision"), dist.Gamma)
    assert isinstance(q.marginal("switch"), dist.Bernoulli)


def test_integers_and_booleans_come_back_as_coordinates():
    labels, switch = OWN_COORDINATES["labels"], OWN_COORDINATES["switch"]
    value = torch.tensor([[0, 2], [1, 1]])
    assert labels.unconstrain(value).tolist() == [0.0, 2.0, 1.0, 1.0]
    assert labels.constrain(labels.unconstrain(value)).equal(value)
    assert switch.unconstrain(torch.tensor(True)).tolist() == [1.0]
    assert switch.constrain(torch.tensor([1.0])).dtype == torch.float32
    assert labels.log_abs_det_jacobian(torch.zeros(5, 4)).tolist() == [0.0] * 5
    assert (labels.is_real, labels.is_integer, switch.is_integer) == (True, True, False)


def test_improper_members_are_named():
    q = mixed()
    natural = q.natural.clone()
    natural[0] = -1.0
    with pytest.raises(ImproperError, match=r"parameters of rates are improper \(a precision, shape or rate that"):
        Posterior(q.family, natural, q.coordinates)


def test_sites_alone_keep_their_families():
    q = mixed()
    alone = q.restrict(["mixture", "labels"])
    assert alone.family.members == (Dirichlet(3), Categorical(3, 4))
    draws = alone.sample(5, torch.Generator().manual_seed(0))
    expected = q.marginal("mixture").log_prob(draws["mixture"]) + q.marginal("labels").log_prob(draws["labels"])
    torch.testing.assert_close(alone.log_prob(draws), expected)
