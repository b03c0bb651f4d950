"""Conjugate models: the factors are the likelihoods, and one undamped synchronous round is exact inference.

Three clients of unequal sizes. Posterior and evidence are the textbook's, with scipy's special functions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from laws.federations import begin, last, play
from scipy import special, stats

import pvi
from pvi.play import play_round
from pvi.schedules import Asynchronous, RandomSubset
from pvi.solvers import Conjugate, NaturalGradient

SIZES = (11, 4, 26)


def counts(exposure, y):
    """Gamma and Poisson."""
    rate = pyro.sample("rate", dist.Gamma(y.new_tensor(2.5), 0.8))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson(exposure * rate), obs=y)


def waiting_times(y):
    """Gamma and Exponential."""
    rate = pyro.sample("rate", dist.Gamma(y.new_tensor(1.5), 2.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Exponential(rate), obs=y)


def tosses(y):
    """Beta and Bernoulli, two coins."""
    with pyro.plate("coins", 2):
        share = pyro.sample("share", dist.Beta(y.new_tensor(1.7), 0.6))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(share).to_event(1), obs=y)


def votes(y):
    """Dirichlet and Categorical."""
    shares = pyro.sample("shares", dist.Dirichlet(torch.tensor([0.5, 1.0, 2.0, 0.7], dtype=torch.float64)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Categorical(shares), obs=y)


def measurements(y):
    """Normal and Normal."""
    loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.5), 2.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc, 1.3), obs=y)


def switch(y):
    """A discrete latent: which of three means all rows have."""
    kind = pyro.sample("kind", dist.Categorical(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)))
    means = torch.tensor([-0.2, 0.1, 0.6], dtype=torch.float64)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(means[kind.long()], 1.5), obs=y)


class Case(NamedTuple):
    """A model, a guide for it, one client's rows, and the closed form: parameters by name and the log evidence."""

    model: Callable[..., Any]
    guide: Callable[..., Any]
    rows: Callable[[np.random.Generator, int], tuple]
    exact: Callable[..., tuple[dict[str, Any], float]]


def gamma_guide(*data):
    pyro.sample("rate", dist.Gamma(1.0, 1.0))


def beta_guide(*data):
    pyro.sample("share", dist.Beta(torch.ones(2), torch.ones(2)).to_event(1))


def dirichlet_guide(*data):
    pyro.sample("shares", dist.Dirichlet(torch.ones(4)))


def normal_guide(*data):
    pyro.sample("loc", dist.Normal(0.0, 1.0))


def categorical_guide(*data):
    pyro.sample("kind", dist.Categorical(torch.ones(3) / 3))


def exact_counts(exposure, y):
    a, b = 2.5 + y.sum(), 0.8 + exposure.sum()
    evidence = special.gammaln(a) - a * np.log(b) - special.gammaln(2.5) + 2.5 * np.log(0.8)
    evidence += (y * np.log(exposure) - special.gammaln(y + 1)).sum()
    return {"rate.concentration": [a], "rate.rate": [b]}, evidence


def exact_waiting_times(y):
    a, b = 1.5 + len(y), 2.0 + y.sum()
    evidence = special.gammaln(a) - a * np.log(b) - special.gammaln(1.5) + 1.5 * np.log(2.0)
    return {"rate.concentration": [a], "rate.rate": [b]}, evidence


def exact_tosses(y):
    heads = y.sum(0)
    a, b = 1.7 + heads, 0.6 + len(y) - heads
    evidence = (special.betaln(a, b) - special.betaln(1.7, 0.6)).sum()
    return {"share.concentration1": a, "share.concentration0": b}, evidence


def exact_votes(y):
    prior = np.array([0.5, 1.0, 2.0, 0.7])
    posterior = prior + np.bincount(y.astype(int), minlength=4)

    def log_beta(a):
        return special.gammaln(a).sum() - special.gammaln(a.sum())

    return {"shares.concentration": posterior}, log_beta(posterior) - log_beta(prior)


def exact_measurements(y):
    precision = 1 / 2.0**2 + len(y) / 1.3**2
    loc = (0.5 / 2.0**2 + y.sum() / 1.3**2) / precision
    covariance = 1.3**2 * np.eye(len(y)) + 2.0**2
    evidence = stats.multivariate_normal.logpdf(y, np.full(len(y), 0.5), covariance)
    return {"loc.loc": [loc], "loc.scale": [precision**-0.5]}, evidence


def exact_switch(y):
    means, prior = np.array([-0.2, 0.1, 0.6]), np.array([0.5, 0.3, 0.2])
    joint = np.log(prior) + stats.norm.logpdf(y[:, None], means, 1.5).sum(0)
    evidence = special.logsumexp(joint)
    return {"kind.probs": np.exp(joint - evidence)}, evidence


CASES = {
    "Gamma-Poisson": Case(
        counts, gamma_guide, lambda rng, n: ((e := rng.uniform(0.5, 3, n)), rng.poisson(1.8 * e)), exact_counts
    ),
    "Gamma-Exponential": Case(
        waiting_times, gamma_guide, lambda rng, n: (rng.exponential(0.4, n),), exact_waiting_times
    ),
    "Beta-Bernoulli": Case(tosses, beta_guide, lambda rng, n: (rng.random((n, 2)) < [0.2, 0.7],), exact_tosses),
    "Dirichlet-Categorical": Case(
        votes, dirichlet_guide, lambda rng, n: (rng.choice(4, n, p=[0.5, 0.1, 0.15, 0.25]),), exact_votes
    ),
    "Normal-Normal": Case(measurements, normal_guide, lambda rng, n: (rng.normal(1.1, 1.3, n),), exact_measurements),
    "discrete-Normal": Case(switch, categorical_guide, lambda rng, n: (rng.normal(0.1, 1.5, n),), exact_switch),
}


def federation(name, sizes=SIZES):
    """The clients' rows as tensors, and the pooled ones' closed form."""
    rng, case = np.random.default_rng(5), CASES[name]
    rows = [tuple(np.asarray(part, dtype=float) for part in case.rows(rng, n)) for n in sizes]
    pooled = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    return [tuple(torch.as_tensor(part) for part in one) for one in rows], case.exact(*pooled)


def is_exact(state, exact, tolerance=1e-8):
    parameters, evidence = exact
    posterior = state.server.posterior
    found = posterior.family.standard(posterior.natural)
    assert set(found) == set(parameters)
    for key, value in parameters.items():
        np.testing.assert_allclose(found[key].flatten().numpy(), np.ravel(value), rtol=tolerance, atol=tolerance)
    assert state.history[-1].elbo == pytest.approx(evidence, abs=tolerance)
    assert state.history[-1].elbo_standard_error == 0


@pytest.mark.parametrize("guide", ["conjugate", "hand-written"])
@pytest.mark.parametrize("name", CASES)
def test_one_undamped_synchronous_round_is_exact(name, guide):
    data, exact = federation(name)
    chosen = CASES[name].guide if guide == "hand-written" else guide
    state = last(play(CASES[name].model, data, 1, guide=chosen, damping=1.0, solver=Conjugate()))
    is_exact(state, exact)
    assert state.history[-1].unconverged == {}
    assert state.history[-1].step_fraction == 1


@pytest.mark.parametrize("name", [name for name in CASES if name != "Normal-Normal"])  # Newton is as exact there
def test_closed_forms_are_what_is_used_where_they_exist(name):
    plan, _ = begin(CASES[name].model, federation(name)[0], guide=CASES[name].guide)
    assert plan.solver == Conjugate()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("algorithm", ["bcm-same", "bcm-split", "vcl", "global-vi"])
def test_committees_and_chains_are_exact_too(name, algorithm):
    data, exact = federation(name)
    state = last(play(CASES[name].model, data, 1, guide="conjugate", algorithm=algorithm, solver=Conjugate()))
    is_exact(state, exact)


@pytest.mark.parametrize("name", CASES)
def test_no_schedule_moves_it_afterwards(name):
    """A factor is the likelihood whatever q it was fitted against: stale updates and subsets end at the same place."""
    data, exact = federation(name)
    for schedule in (Asynchronous(latency=[1.0, 0.4, 2.5]), RandomSubset(size=2, seed=0), "sequential"):
        plan, state = begin(CASES[name].model, data, 8, guide=CASES[name].guide, schedule=schedule, damping=1.0)
        for _ in range(8):
            state = play_round(plan, state)
        is_exact(state, exact)


@pytest.mark.parametrize(
    ("solver", "damping"), [(Conjugate(), 0.3), (NaturalGradient(steps=1, step_size=0.5, exact=True), 0.6)]
)
@pytest.mark.parametrize("name", CASES)
def test_damping_goes_there_geometrically(name, solver, damping):
    """η_q - η_p = (1 - (1 - ρ)^r) Σ λ_m: every round proposes the same factors. With fixed-point steps β it is ρβ."""
    data, _ = federation(name)
    rate, case = 0.3, CASES[name]
    # Not the hand-written guide: steps would start at its initial values, not at the q that was sent.
    exact = last(play(case.model, data, 1, guide="conjugate", damping=1.0, solver=Conjugate())).server
    states = play(case.model, data, 4, guide="conjugate", damping=damping, solver=solver)
    for number, state in enumerate(states, start=1):
        whole = exact.posterior.natural - exact.prior.natural
        expected = exact.prior.natural + (1 - (1 - rate) ** number) * whole
        assert torch.allclose(state.server.posterior.natural, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_partition_makes_no_difference(name):
    """However the rows are dealt the answer is the same, and the factors add up to it."""
    whole, exact = federation(name)
    pooled = tuple(torch.cat(parts) for parts in zip(*whole, strict=True))
    for cuts in ([1], [1, 2, 3], [20, 40]):
        pieces = [part.tensor_split(cuts) for part in pooled]
        data = [tuple(piece[k] for piece in pieces) for k in range(len(cuts) + 1)]
        result = pvi.fit(CASES[name].model, data, guide="conjugate", damping=1.0, rounds=1)
        assert result.elbo == pytest.approx(exact[1], abs=1e-8)
        total = result.prior.natural + sum(factor.natural for factor in result.factors.values())
        assert torch.allclose(total, result.posterior.natural, atol=1e-9)
