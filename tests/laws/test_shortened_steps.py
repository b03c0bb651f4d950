"""A sum of changes that would make q improper is shortened, recorded, and the run goes on to the optimum.

A location with heavy-tailed noise: where a client's two rows lie far on both sides of q, its log likelihood is convex
in between, and its factor has a negative precision. Each alone is legal, p t_m is proper; the product of all is not.
The local and the global optimum come from quadrature and a general minimiser in scipy.
"""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from laws.federations import play
from scipy import optimize, stats

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)
SCALE, FREEDOM = 0.5, 3.0
MARGIN = 0.01
"""How far before the boundary a step stops, as `largest_step` says."""


def heavy_tailed(y):
    """y_i ~ StudentT(3, loc, 0.5), loc ~ Normal(0, 1)."""
    loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(FREEDOM, loc, SCALE), obs=y)


def two_sided(number=4, shift=0.5, half=4.0):
    """Clients with one row on each side."""
    return [(torch.tensor([shift - half, shift + half], dtype=torch.float64),)] * number


def optimum(y, h, precision, start):
    """Mean and precision of the Gaussian that maximises E_q[log p(y | loc)] + E_q[h loc - ½ Λ loc²] + H[q]."""

    def loss(x):
        mean, sd = x[0], np.exp(x[1])
        loc = mean + sd * NODES
        rows = stats.t.logpdf(np.asarray(y)[:, None], FREEDOM, loc, SCALE).sum(0) @ WEIGHTS / WEIGHTS.sum()
        return -(rows + h * mean - 0.5 * precision * (mean**2 + sd**2) + x[1])

    found = optimize.minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14})
    return found.x[0], np.exp(-2 * found.x[1]), -found.fun


def mean_and_precision(state):
    family, natural = state.server.posterior.family, state.server.posterior.natural
    return family.location(natural).item(), 1 / family.variance(natural).item()


def test_the_undamped_sum_of_a_first_round_is_shortened():
    data = two_sided()
    mean, precision, _ = optimum(data[0][0], 0.0, 1.0, [-1.0, 0.0])
    change = np.array([mean * precision, precision - 1])  # Δ = η_{q_m} - η_p in (h, Λ)
    assert precision > 0
    assert 1 + len(data) * change[1] < 0  # the sum would be improper
    (state,) = play(heavy_tailed, data, 1, damping=1.0)
    record = state.history[-1]
    expected = (1 - MARGIN) / (-len(data) * change[1])
    assert record.step_fraction == pytest.approx(expected, rel=1e-4)
    assert record.step_fraction < 1
    assert all(info.step_fraction == record.step_fraction and not info.rejected for info in record.clients.values())
    assert mean_and_precision(state)[1] == pytest.approx(MARGIN, rel=1e-6)
    for client in state.clients.values():
        assert not client.factor.is_proper
        assert client.factor.natural[0] == pytest.approx(record.step_fraction * change[0], rel=1e-4)
        assert -2 * client.factor.natural[1] == pytest.approx(record.step_fraction * change[1], rel=1e-4)


@pytest.mark.parametrize("damping", [1.0, "auto"])
def test_it_converges_to_the_optimum_of_global_vi(damping):
    data = two_sided()
    shortened = False
    for state in play(heavy_tailed, data, 60, damping=damping):
        record = state.history[-1]
        shortened |= record.step_fraction < 1
        assert bool(state.server.posterior.family.is_proper(state.server.posterior.natural))
        assert np.isfinite(record.elbo)
        if record.max_shift < 1e-8:
            break
    assert shortened or damping == "auto"  # the search starts at one half, which may fit
    mean, precision = mean_and_precision(state)
    best = optimum(torch.cat([y for (y,) in data]), 0.0, 1.0, [mean, -0.5 * np.log(precision)])
    assert mean == pytest.approx(best[0], abs=1e-5)
    assert precision == pytest.approx(best[1], rel=1e-5)
    # What the minimiser leaves out: -½ log 2π of the prior, ½ log 2π + ½ of the entropy.
    assert record.elbo == pytest.approx(best[2] + 0.5, abs=1e-8)


@pytest.mark.parametrize(("number", "damping"), [(1, 1.0), (2, 0.3)])
def test_a_step_that_fits_is_not_touched(number, damping):
    """One client's own q_m is proper, and so are damped changes that are small enough together."""
    (state,) = play(heavy_tailed, two_sided(number), 1, damping=damping)
    assert state.history[-1].step_fraction == 1
    assert not any(client.factor.is_proper for client in state.clients.values())
