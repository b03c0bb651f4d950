import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import constraints

from pvi.diagnostics.labels import dimensions, element_labels
from pvi.diagnostics.marginals import direction, interval
from pvi.families import Coordinates, DiagonalGaussian, FullGaussian, Product, site_coordinates
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
