import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import constraints

from pvi.diagnostics.labels import dimensions, element_labels
from pvi.diagnostics.marginals import direction, interval
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
from pvi.posterior import Posterior

LOC, SD = 0.4, 0.7


def posterior(support, shape=(), family=DiagonalGaussian, loc=LOC, sd=SD):
    site = site_coordinates("s", shape, support)
    member = family(site.size)
    normal = torch.distributions.Normal(torch.full((site.size,), loc).double(), sd)
    if family is DiagonalGaussian:
        natural = torch.cat([normal.loc / normal.variance, -0.5 / normal.variance])
    else:
        natural = member.recover(lambda x: normal.log_prob(x).sum(), torch.zeros((), dtype=torch.float64))
    return Posterior(Product(("s",), (member,)), natural, Coordinates((site,)))


@pytest.mark.parametrize("family", [DiagonalGaussian, FullGaussian])
def test_real_sites(family):
    q = posterior(constraints.real, (2,), family)
    low, high = interval(q, "s", 0.9)
    assert np.allclose(low, stats.norm(LOC, SD).ppf(0.05))
    assert np.allclose(high, stats.norm(LOC, SD).ppf(0.95))
    assert np.allclose(direction(q, "s"), stats.norm.cdf(LOC / SD))


def test_positive_sites_are_log_normal_and_have_no_direction():
    q = posterior(constraints.positive)
    low, high = interval(q, "s")
    law = stats.lognorm(SD, scale=math.exp(LOC))
    assert np.allclose([low, high], law.ppf([0.025, 0.975]))
    assert direction(q, "s").isnan()


def test_a_decreasing_bijection_keeps_the_ends_in_order():
    q = posterior(constraints.less_than(1.0))
    low, high = interval(q, "s")
    assert low < high
    draws = q.sample(200_000, torch.Generator().manual_seed(0))["s"]
    share = (draws < 0).double().mean()
    assert abs(direction(q, "s") - max(share, 1 - share)) < 5 * 0.5 / math.sqrt(200_000)
    assert abs((draws < low).double().mean() - 0.025) < 5 * math.sqrt(0.025 / 200_000)


def test_direction_across_zero_of_an_interval():
    q = posterior(constraints.interval(-1.0, 1.0))
    assert np.allclose(direction(q, "s"), stats.norm.cdf(LOC / SD))
    assert direction(posterior(constraints.interval(2.0, 5.0)), "s").isnan()
    assert direction(posterior(constraints.interval(-5.0, -2.0)), "s").isnan()


def test_simplex_from_draws():
    q = posterior(constraints.simplex, (3,))
    low, high = interval(q, "s")
    assert low.shape == high.shape == (3,)
    assert (low > 0).all()
    assert (low < high).all()
    assert direction(q, "s").isnan().all()


def test_unknown_site_and_level():
    q = posterior(constraints.real)
    with pytest.raises(KeyError, match="no shared site 'w'"):
        interval(q, "w")
    with pytest.raises(ValueError, match="level"):
        interval(q, "s", 1.5)


def coordinates(**shapes):
    return Coordinates(tuple(site_coordinates(name, shape, constraints.real) for name, shape in shapes.items()))


def test_labels():
    columns = ("a", "b")
    assert element_labels(coordinates(w=(2,), b0=()), columns) == {"w": ["a", "b"], "b0": ["b0"]}
    assert element_labels(coordinates(w=(2,)), ()) == {"w": ["w[0]", "w[1]"]}
    two = element_labels(coordinates(w=(2,), v=(2,)), columns)
    assert two == {"w": ["w[a]", "w[b]"], "v": ["v[a]", "v[b]"]}
    matrix = element_labels(coordinates(W=(2, 3)), ("a", "b", "c"))
    assert matrix["W"] == ["W[0,a]", "W[0,b]", "W[0,c]", "W[1,a]", "W[1,b]", "W[1,c]"]


def test_a_feature_called_like_a_site_is_told_apart():
    labels = element_labels(coordinates(weights=(2,), bias=()), ("bias", "age"))
    assert labels == {"weights": ["weights[bias]", "weights[age]"], "bias": ["bias"]}


def test_dimension_names():
    assert dimensions("w", (2, 3), ("a", "b", "c")) == ["w_dim_0", "feature"]
    assert dimensions("w", (3, 3), ("a", "b", "c")) == ["feature", "w_dim_1"]
    assert dimensions("w", (3,), ()) == ["w_dim_0"]


def own(member, shape, support, **standard):
    """A posterior of one site in its own space."""
    tensors = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in standard.items()}
    coordinates = Coordinates((own_coordinates("s", shape, support),))
    return Posterior(Product(("s",), (member,)), member.natural_from_standard(**tensors), coordinates)


LEVELS = (0.05, 0.95)
ON_THEIR_SUPPORTS = {
    "gamma": (
        own(Gamma(2), (2,), constraints.positive, concentration=[0.5, 30.0], rate=[2.0, 3.0]),
        stats.gamma([0.5, 30.0], scale=[1 / 2, 1 / 3]),
    ),
    "beta": (
        own(Beta(1), (), constraints.unit_interval, concentration1=[3.0], concentration0=[0.7]),
        stats.beta(3.0, 0.7),
    ),
    "dirichlet": (
        own(Dirichlet(3), (3,), constraints.simplex, concentration=[[2.0, 0.5, 7.0]]),
        stats.beta([2.0, 0.5, 7.0], [7.5, 9.0, 2.5]),
    ),
    "bernoulli": (
        own(Bernoulli(3), (3,), constraints.boolean, probs=[0.02, 0.5, 0.97]),
        stats.bernoulli([0.02, 0.5, 0.97]),
    ),
    "categorical": (
        own(Categorical(4), (), constraints.integer_interval(0, 3), probs=[[0.02, 0.9, 0.04, 0.04]]),
        stats.rv_discrete(values=(range(4), [0.02, 0.9, 0.04, 0.04])),
    ),
}


@pytest.mark.parametrize("name", ON_THEIR_SUPPORTS)
def test_families_on_their_own_supports(name):
    q, law = ON_THEIR_SUPPORTS[name]
    for end, level in zip(interval(q, "s", 0.9), LEVELS, strict=True):
        assert end.shape == q.coordinates.sites[0].shape
        assert np.allclose(end, law.ppf(level), rtol=1e-9)
    mean, sd = q.moments("s")
    assert np.allclose(mean, law.mean())
    assert np.allclose(sd, law.std())
    assert bool(direction(q, "s").isnan().all())


def test_families_without_closed_quantiles_use_draws():
    class Plain(Gamma):
        """A family that the diagnostics have never seen."""

    q = own(Plain(1), (1,), constraints.positive, concentration=[2.0], rate=[3.0])
    low, high = interval(q, "s")
    assert 0 < low < high
    # Five standard errors of a quantile of 4,096 draws.
    law = stats.gamma(2.0, scale=1 / 3)
    for end, level in ((low, 0.025), (high, 0.975)):
        error = math.sqrt(level * (1 - level) / 4096) / law.pdf(law.ppf(level))
        assert abs(end.item() - law.ppf(level)) < 5 * error
