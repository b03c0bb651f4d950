"""Each effect handler alone."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch.distributions import constraints
from toy_programs import F64, normal

from pvi.families import Coordinates, DiagonalGaussian, FullGaussian, site_coordinates
from pvi.programs.handlers import CavityPrior, Predictor, Rows, ScaleObserved, Values

MATRIX = site_coordinates("matrix", (3, 2), constraints.real)
RATES = site_coordinates("rates", (2,), constraints.positive)
SHARE = site_coordinates("share", (3,), constraints.simplex)
COORDINATES = Coordinates((MATRIX, RATES, SHARE))
FAMILY = FullGaussian(COORDINATES.size)
NATURAL = normal(FAMILY.num_natural, seed=1)  # improper as it comes


def events():
    pyro.sample("matrix", dist.Normal(torch.zeros(3, 2, dtype=F64), 1.0).to_event(2))
    pyro.sample("rates", dist.LogNormal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
    pyro.sample("share", dist.Dirichlet(torch.ones(3, dtype=F64)))


def plated():
    one = torch.ones((), dtype=F64)
    with pyro.plate("columns", 2, dim=-1):
        with pyro.plate("rows", 3, dim=-2):
            pyro.sample("matrix", dist.Normal(0 * one, one))
        pyro.sample("rates", dist.LogNormal(0 * one, one))
    pyro.sample("share", dist.Dirichlet(torch.ones(3, dtype=F64)))


def reordered():
    """The last site is another one, in a plate; one plate around both."""
    one = torch.ones((), dtype=F64)
    pyro.sample("share", dist.Dirichlet(torch.ones(3, dtype=F64)))
    with pyro.plate("columns", 2, dim=-1):
        pyro.sample("rates", dist.LogNormal(0 * one, one))
        pyro.sample("matrix", dist.Normal(torch.zeros(3, 1, dtype=F64), one))


def log_factor(x):
    return (NATURAL * FAMILY.statistics(x)).sum(-1)


@pytest.mark.parametrize("model", [events, plated, reordered], ids=lambda model: model.__name__)
def test_the_cavity_is_exact_however_sites_are_plated(model):
    assert not FAMILY.is_proper(NATURAL)
    x = normal(COORDINATES.size, seed=2)
    with CavityPrior(COORDINATES, log_factor), Values(COORDINATES.constrain(x)):
        trace = poutine.trace(model).get_trace()
    expected = log_factor(x) - COORDINATES.log_abs_det_jacobian(x)
    torch.testing.assert_close(trace.log_prob_sum(), expected, rtol=1e-10, atol=1e-10)
    for site in COORDINATES.sites:
        assert trace.nodes[site.name]["value"].shape == site.shape


def test_the_cavity_handler_can_be_entered_again():
    cavity = CavityPrior(COORDINATES, log_factor)
    totals = []
    for seed in (2, 3):
        x = normal(COORDINATES.size, seed=seed)
        with cavity, Values(COORDINATES.constrain(x)):
            totals.append(poutine.trace(events).get_trace().log_prob_sum() - log_factor(x))
        totals[-1] = totals[-1] + COORDINATES.log_abs_det_jacobian(x)
    torch.testing.assert_close(torch.stack(totals), torch.zeros(2, dtype=F64), rtol=0, atol=1e-9)


def test_the_cavity_leaves_likelihood_and_private_sites_alone():
    site = site_coordinates("z", (), constraints.real)
    family = DiagonalGaussian(1)
    natural = torch.tensor([0.4, 0.2], dtype=F64)  # improper

    def model(y):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            private = pyro.sample("private", dist.Normal(z, 1.0))
            pyro.sample("y", dist.Normal(private, 1.0), obs=y)

    y, z, private = normal(3, seed=4), normal(seed=5), normal(3, seed=6)
    handler = CavityPrior(Coordinates((site,)), lambda x: (natural * family.statistics(x)).sum(-1))
    with handler, Values({"z": z, "private": private}):
        found = poutine.trace(model).get_trace(y).log_prob_sum()
    expected = 0.4 * z + 0.2 * z**2 + dist.Normal(z, 1.0).log_prob(private).sum()
    torch.testing.assert_close(found, expected + dist.Normal(private, 1.0).log_prob(y).sum())


def test_the_cavity_carries_gradients():
    x = normal(COORDINATES.size, seed=2).requires_grad_()
    with CavityPrior(COORDINATES, log_factor), Values(COORDINATES.constrain(x)):
        total = poutine.trace(plated).get_trace().log_prob_sum()
    (found,) = torch.autograd.grad(total, x)
    expected = torch.func.grad(lambda x: log_factor(x) - COORDINATES.log_abs_det_jacobian(x))(x.detach())
    torch.testing.assert_close(found, expected)


def test_rows_choose_a_subsample_and_leave_whole_plates_alone():
    def model():
        with pyro.plate("whole", 4, dim=-2) as whole, pyro.plate("part", 6, subsample_size=2, dim=-1) as part:
            pyro.sample("y", dist.Normal(0.0, 1.0).expand([4, 2]), obs=torch.zeros(4, 2))
        return whole, part

    state = torch.get_rng_state()
    with Rows(torch.tensor([5, 0])):
        whole, part = model()
        trace = poutine.trace(model).get_trace()
    assert whole.tolist() == [0, 1, 2, 3]
    assert part.tolist() == [5, 0]
    assert trace.nodes["y"]["scale"] == 3.0
    assert torch.equal(state, torch.get_rng_state())


def test_scale_reaches_observed_sites_only_and_multiplies():
    def model():
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.deterministic("f", 2 * z)
        with poutine.scale(scale=0.5):
            pyro.sample("y", dist.Normal(z, 1.0), obs=torch.tensor(0.0))

    with ScaleObserved(3.0):
        nodes = poutine.trace(model).get_trace().nodes
    assert [nodes[name]["scale"] for name in ("z", "f", "y")] == [1.0, 1.0, 1.5]


def test_values_keep_sites_latent_and_observations_observed():
    def model():
        pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("other", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.5))

    with Values({"z": torch.tensor(7.0), "y": torch.tensor(9.0)}):
        nodes = poutine.trace(model).get_trace().nodes
    assert nodes["z"]["value"] == 7.0
    assert not nodes["z"]["is_observed"]
    assert nodes["y"]["value"] == 0.5
    assert nodes["y"]["is_observed"]
    assert nodes["other"]["value"] != 7.0


F = torch.tensor([-1.0, 0.3, 2.0])
Y = torch.tensor([1.0, 0.0, 1.0])
LIKELIHOODS = {
    "Bernoulli": lambda f: dist.Bernoulli(logits=f),
    "Bernoulli(probs)": lambda f: dist.Bernoulli(probs=f.sigmoid()),
    "Binomial": lambda f: dist.Binomial(torch.tensor([3.0, 1.0, 2.0]), logits=f),
    "Poisson": lambda f: dist.Poisson(f.exp()),
    "Normal": lambda f: dist.Normal(f, 0.5),
    "StudentT": lambda f: dist.StudentT(3.0, f, 0.5),
}


@pytest.mark.parametrize("event", [False, True], ids=["plate", "event"])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_predictors_are_read_and_replaced(kind, event):
    likelihood = LIKELIHOODS[kind]

    def model():
        fn = likelihood(F)
        pyro.sample("y", fn.to_event(1) if event else fn, obs=Y)

    with Predictor() as handler:
        before = poutine.trace(model).get_trace()
    torch.testing.assert_close(handler.found, F)
    torch.testing.assert_close(before.log_prob_sum(), likelihood(F).log_prob(Y).sum())
    other = F.flip(0) + 0.1
    with Predictor(other) as handler:
        after = poutine.trace(model).get_trace()
    torch.testing.assert_close(after.log_prob_sum(), likelihood(other).log_prob(Y).sum())
    torch.testing.assert_close(handler.found, F)


def test_a_marked_predictor_comes_first():
    def model():
        f = pyro.deterministic("linear_predictor", F)
        pyro.sample("y", dist.Normal(f.exp(), 1.0), obs=Y)

    with Predictor(0 * F) as handler:
        trace = poutine.trace(model).get_trace()
    torch.testing.assert_close(handler.found, F)
    torch.testing.assert_close(trace.log_prob_sum(), dist.Normal(1.0, 1.0).log_prob(Y).sum())


def test_other_likelihoods_have_no_predictor():
    with Predictor() as handler:
        pyro.sample("y", dist.Gamma(F.exp(), 1.0), obs=1 + Y)
    assert handler.found is None
