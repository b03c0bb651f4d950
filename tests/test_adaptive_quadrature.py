"""Gaussian integrals of densities against scipy's quad and closed forms, in easy and in hopeless places."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from toy_programs import F64

from pvi.adaptive_quadrature import NotIntegrated, log_expectation

LOCS = [-40.0, -8.0, -1.0, 0.5, 6.0, 40.0]


def by_quad(log_g, loc, scale, places):
    """log E[g] in nats: scipy's quad over short pieces of all that lies within 45 nats of the densest grid's peak."""

    def height(f):
        return log_g(f) - 0.5 * ((f - loc) / scale) ** 2

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        grids = [loc + scale * np.linspace(-60, 60, 12_001)]
        grids += [place + width * np.linspace(-60, 60, 6_001) for place, width in places]
        grids += [place + 30 * width * np.linspace(-60, 60, 6_001) for place, width in places]
        grid = np.unique(np.concatenate(grids))
        heights = np.nan_to_num(height(grid), nan=-np.inf)
        peak = heights.max()
        inside = np.flatnonzero(heights > peak - 45)
        edges = grid[[*inside[:: max(1, len(inside) // 60)], inside[-1]]]
        first, last = grid[max(0, inside[0] - 1)], grid[min(len(grid) - 1, inside[-1] + 1)]
        edges = [first, *edges, last]
        pieces = [
            integrate.quad(lambda f: np.exp(height(f) - peak), a, b, epsabs=0, epsrel=1e-11)[0]
            for a, b in itertools.pairwise(edges)
            if b > a
        ]
    return peak + math.log(math.fsum(pieces)) - math.log(scale * math.sqrt(2 * math.pi))


def check(log_g, log_g_numpy, scale, locs, places=(), starts=(), tolerance=1e-8):
    loc = torch.tensor(locs, dtype=F64)
    found = log_expectation(log_g, loc, torch.full_like(loc, scale), starts)
    expected = [by_quad(log_g_numpy, one, scale, places) for one in locs]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=tolerance)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0, 40.0, 1e6])
def test_the_logistic_function(scale):
    check(torch.nn.functional.logsigmoid, lambda f: -np.logaddexp(0, -f), scale, LOCS, [(0, 2.0)])


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("count", [0, 5000, 10**6])
@pytest.mark.parametrize("scale", [0.01, 5.0])
def test_poisson_counts(count, scale):
    constant = math.lgamma(count + 1)
    places = [(math.log(count + 0.1), 3 / math.sqrt(count + 1))]
    locs = [-40.0, -5.0, 0.0, 3.0, 20.0]
    check(
        lambda f: count * f - f.exp() - constant,
        lambda f: count * f - np.exp(f) - constant,
        scale,
        locs,
        places,
        tolerance=1e-7,  # values down to -1e12 nats
    )


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("df", [1.0, 30.0])
@pytest.mark.parametrize("sd", [0.02, 1.0])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_heavy_tails_have_two_peaks(df, sd, scale):
    y = torch.tensor(0.5, dtype=F64)
    locs = [-40.0, -3.0, 0.0, 2.0]
    check(
        lambda f: torch.distributions.StudentT(df, f, sd).log_prob(y),
        lambda f: stats.t.logpdf(0.5, df, f, sd),
        scale,
        locs,
        [(0.5, sd)],
        [torch.full((len(locs),), 0.5, dtype=F64)],
    )


@pytest.mark.parametrize("sd", [1e-4, 0.1, 50.0])
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 1e3])
def test_normal_noise_in_closed_form(sd, scale):
    y, loc = torch.tensor(3.0, dtype=F64), torch.linspace(-50, 50, 11, dtype=F64)
    found = log_expectation(
        lambda f: torch.distributions.Normal(f, sd).log_prob(y), loc, torch.full_like(loc, scale), [y.expand(11)]
    )
    expected = torch.distributions.Normal(loc, math.hypot(sd, scale)).log_prob(y)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_exponentials_in_closed_form_however_far_the_mass_lies():
    loc, scale = torch.tensor([0.0, -3.0, 40.0], dtype=F64), torch.tensor([10.0, 30.0, 0.1], dtype=F64)
    torch.testing.assert_close(log_expectation(lambda f: f, loc, scale), loc + scale.square() / 2)


def test_rows_of_every_kind_together_are_what_they_are_alone(monkeypatch):
    loc = torch.tensor([0.0, 40.0, -40.0, 3.0, 5.0], dtype=F64)
    scale = torch.tensor([0.0, 1e-3, 7.0, 1e5, 1.0], dtype=F64)
    together = log_expectation(torch.nn.functional.logsigmoid, loc, scale)
    alone = [log_expectation(torch.nn.functional.logsigmoid, loc[[k]], scale[[k]]) for k in range(5)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)
    monkeypatch.setattr("pvi.adaptive_quadrature.MAX_ELEMENTS", 20)
    torch.testing.assert_close(log_expectation(torch.nn.functional.logsigmoid, loc, scale), together)


def test_kinks_and_jumps():
    loc, scale = torch.linspace(-3, 3, 7, dtype=F64), torch.full((7,), 0.7, dtype=F64)
    found = log_expectation(lambda f: torch.where(f > 0.3, 0.0, -math.inf), loc, scale)
    torch.testing.assert_close(found, torch.special.log_ndtr((loc - 0.3) / scale), rtol=0, atol=1e-8)
    # Nothing within four standard deviations of the mean.
    found = log_expectation(lambda f: torch.where(f > 30, 0.0, -math.inf), loc, scale)
    torch.testing.assert_close(found, torch.special.log_ndtr((loc - 30) / scale), rtol=0, atol=1e-8)


def test_zero_infinite_and_no_rows():
    loc = torch.zeros(3, dtype=F64)
    assert (log_expectation(lambda f: torch.full_like(f, -math.inf), loc, loc + 1) == -math.inf).all()
    assert (log_expectation(lambda f: torch.full_like(f, math.inf), loc, loc + 1) == math.inf).all()
    assert log_expectation(lambda f: f, loc[:0], loc[:0]).shape == (0,)


def test_no_integral():
    loc = torch.zeros(2, dtype=F64)
    with pytest.raises(NotIntegrated, match="row 0 has not converged"):
        log_expectation(lambda f: 5 * torch.sin(1e9 * f), loc, loc + 1)
    assert (log_expectation(lambda f: f.square(), loc, loc + 1) == math.inf).all()
