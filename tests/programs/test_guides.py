"""Families from guides: mean field, groups of full covariance, hand-written programs."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoNormal
from torch.distributions import biject_to, constraints
from toy_programs import F64, normal

from pvi.families import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    FullGaussian,
    Gamma,
    log_prob,
)
from pvi.programs.batch import as_batch
from pvi.programs.guide_program import guide_program
from pvi.programs.guides import FullCovariance, MeanField, PriorFamily, approximation
from pvi.programs.sites import ProgramError, discover

Y = normal(4, seed=1)


def model(y):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("groups", 3):
        pyro.sample("group", dist.Normal(0.0, 1.0))
    pyro.sample("share", dist.Dirichlet(torch.ones(3)))
    pyro.sample("y", dist.Normal(weights.sum(), scale).expand([len(y)]).to_event(1), obs=y)


BATCH = as_batch((Y,), "a")
SHARED = discover(model, BATCH, "a").shared


def read(guide):
    return approximation(guide, SHARED, BATCH)


def test_mean_field():
    found = read(MeanField())
    assert found.family.names == ("weights", "scale", "group", "share")
    assert found.family.members == tuple(DiagonalGaussian(size) for size in (2, 1, 3, 2))
    assert found.initial is None
    assert found.coordinates.size == 8


def test_full_covariance_over_everything():
    found = read(FullCovariance())
    assert found.family.names == ("weights+scale+group+share",)
    assert found.family.members == (FullGaussian(8),)


def test_full_covariance_in_groups():
    found = read(FullCovariance(("scale", "weights")))
    assert found.family.names == ("scale+weights", "group", "share")
    assert found.family.members == (FullGaussian(3), DiagonalGaussian(3), DiagonalGaussian(2))
    # The coordinates follow the family.
    assert found.coordinates.names == ("scale", "weights", "group", "share")
    assert read(FullCovariance(("weights",))).family.members[0] == FullGaussian(2)


@pytest.mark.parametrize("groups", [(("weights", "wieghts"),), (("weights", "scale"), ("scale",))])
def test_groups_name_each_site_once(groups):
    with pytest.raises(ProgramError, match="must name each shared site at most once"):
        read(FullCovariance(*groups))


COVARIANCE = torch.tensor([[1.0, 0.4], [0.4, 0.5]], dtype=F64)


def guide(y):
    loc = pyro.param("loc", lambda: torch.randn(2))
    pyro.sample("weights", dist.MultivariateNormal(loc, COVARIANCE))
    pyro.sample("scale", dist.LogNormal(0.3, 0.2))
    with pyro.plate("groups", 3):
        pyro.sample("group", dist.Normal(torch.tensor([1.0, 2.0, 3.0]), 0.1))
    base = dist.Normal(torch.tensor([0.1, -0.2]), 0.3).to_event(1)
    pyro.sample("share", dist.TransformedDistribution(base, [biject_to(constraints.simplex)]))


def test_hand_written_guides_are_read():
    state = torch.get_rng_state()
    found = read(guide)
    assert found.family.names == ("weights", "scale", "group", "share")
    assert found.family.members == (FullGaussian(2), DiagonalGaussian(1), DiagonalGaussian(3), DiagonalGaussian(2))
    standard = found.family.standard(found.initial)
    expected = {
        "weights.covariance_matrix": COVARIANCE,
        "scale.loc": torch.tensor([0.3]),
        "scale.scale": torch.tensor([0.2]),
        "group.loc": torch.tensor([1.0, 2.0, 3.0]),
        "group.scale": torch.tensor([0.1, 0.1, 0.1]),
        "share.loc": torch.tensor([0.1, -0.2]),
        "share.scale": torch.tensor([0.3, 0.3]),
    }
    for name, value in expected.items():
        torch.testing.assert_close(standard[name], value.to(F64), msg=lambda text, name=name: f"{name}: {text}")
    assert torch.equal(state, torch.get_rng_state())
    assert not list(pyro.get_param_store().keys())
    torch.testing.assert_close(read(guide).initial, found.initial)


def test_the_order_of_the_guide_is_kept():
    def other(y):
        pyro.sample("share", biject_simplex())
        with pyro.plate("groups", 3):
            pyro.sample("group", dist.Normal(0.0, 1.0))
        pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))

    found = read(other)
    assert found.coordinates.names == found.family.names == ("share", "group", "scale", "weights")


def biject_simplex():
    base = dist.Normal(torch.zeros(2), 1.0).to_event(1)
    return dist.TransformedDistribution(base, [biject_to(constraints.simplex)])


def lacks(y):
    pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    pyro.sample("sclae", dist.LogNormal(0.0, 1.0))


def complete(change):
    """A right guide with one site replaced."""

    def guide(y):
        sites = {
            "weights": lambda: dist.Normal(torch.zeros(2), 1.0).to_event(1),
            "scale": lambda: dist.LogNormal(0.0, 1.0),
            "group": lambda: dist.Normal(torch.zeros(3), 1.0).to_event(1),
            "share": biject_simplex,
        }
        for name, make in (sites | change).items():
            pyro.sample(name, make())

    return guide


def dependent(y):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    pyro.sample("scale", dist.LogNormal(weights.sum(), 1.0))
    pyro.sample("group", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.sample("share", biject_simplex())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lacks, r"lacks the sites \['scale', 'group', 'share'\] and has the extra sites \['sclae'\]"),
        (AutoNormal(model), "an autoguide is not needed: guide=None is AutoNormal"),
        (complete({"weights": lambda: dist.StudentT(3.0, torch.zeros(2), 1.0).to_event(1)}), "'weights': StudentT"),
        (complete({"scale": lambda: dist.Weibull(2.0, 1.0)}), r"guide site 'scale': Weibull is not a Gaussian"),
        (
            complete({"scale": lambda: dist.Bernoulli(0.5)}),
            "'scale': Bernoulli with values in .* cannot stand",
        ),
        (complete({"share": lambda: dist.Beta(torch.ones(3), 1.0).to_event(1)}), "'share': Beta has values outside"),
        (complete({"weights": lambda: dist.Normal(torch.zeros(3), 1.0).to_event(1)}), r"has shape \(3,\), the model"),
        (dependent, "guide site 'scale' depends on a random value"),
    ],
    ids=["missing", "autoguide", "student", "weibull", "bernoulli", "beta", "shape", "dependent"],
)
def test_guides_that_cannot_be_used(wrong, message):
    with pytest.raises(ProgramError, match=message):
        read(wrong)


@pytest.mark.parametrize("shape", [MeanField(), FullCovariance(), FullCovariance(("scale", "group"))], ids=repr)
def test_the_guide_program_has_q_as_its_density(shape):
    found = read(shape)
    free = 0.3 * normal(found.family.num_free, seed=2)
    natural = found.family.natural_from_free(free)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trace = poutine.trace(guide_program(found, lambda: natural)).get_trace()
    values = {name: trace.nodes[name]["value"] for name in found.coordinates.names}
    for site in SHARED:
        assert values[site.name].shape == site.shape
    x = found.coordinates.unconstrain(values)
    expected = log_prob(found.family, natural, x) - found.coordinates.log_abs_det_jacobian(x)
    torch.testing.assert_close(trace.log_prob_sum(), expected)
    assert {name for name, node in trace.nodes.items() if node["type"] == "sample"} == set(values)


def test_the_guide_program_draws_from_q():
    found = read(FullCovariance())
    natural = found.family.natural_from_free(0.3 * normal(found.family.num_free, seed=2))
    draw = poutine.trace(guide_program(found, lambda: natural))
    with torch.random.fork_rng(devices=[]), pyro.validation_enabled(False):
        torch.manual_seed(0)
        points = []
        for _ in range(1_000):
            nodes = draw.get_trace().nodes
            points.append(
                found.coordinates.unconstrain(
                    {name: nodes[name]["value"] for name in nodes if name in found.coordinates.names}
                )
            )
    statistics = found.family.statistics(torch.stack(points))
    error = statistics.std(0) / 1_000**0.5
    assert bool(((statistics.mean(0) - found.family.mean_parameters(natural)).abs() <= 5 * error).all())


def mixed_model(y):
    rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
    chances = pyro.sample("chances", dist.Beta(torch.ones(2), 1.0).to_event(1))
    with pyro.plate("groups", 2):
        share = pyro.sample("share", dist.Dirichlet(torch.ones(3)))
        label = pyro.sample("label", dist.Categorical(torch.ones(4)))
    switch = pyro.sample("switch", dist.Bernoulli(0.5))
    weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    loc = rate + chances.sum() + share.sum() + label.sum() + switch + weights.sum()
    pyro.sample("y", dist.Normal(loc, 1.0).expand([len(y)]).to_event(1), obs=y)


def mixed_guide(y):
    """Each site in another family; the weights first."""
    pyro.sample("weights", dist.MultivariateNormal(torch.zeros(2), COVARIANCE))
    pyro.sample("rate", dist.Gamma(torch.tensor(3.0), torch.tensor(0.5)))
    pyro.sample("chances", dist.Beta(torch.tensor([2.0, 0.5]), 3.0).to_event(1))
    with pyro.plate("groups", 2):
        pyro.sample("share", dist.Dirichlet(torch.tensor([1.0, 2.0, 0.3])))
        pyro.sample("label", dist.Categorical(torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])))
    pyro.sample("switch", dist.Bernoulli(logits=torch.tensor(-1.2)))


MIXED = discover(mixed_model, BATCH, "a").shared
FAMILIES = {
    "weights": FullGaussian(2),
    "rate": Gamma(1),
    "chances": Beta(2),
    "share": Dirichlet(3, rows=2),
    "label": Categorical(4, rows=2),
    "switch": Bernoulli(1),
}


def test_guides_mix_families():
    found = approximation(mixed_guide, MIXED, BATCH)
    assert dict(zip(found.family.names, found.family.members, strict=True)) == FAMILIES
    assert found.coordinates.names == tuple(FAMILIES)
    standard = found.family.standard(found.initial)
    expected = {
        "weights.covariance_matrix": COVARIANCE.tolist(),
        "rate.concentration": [3.0],
        "rate.rate": [0.5],
        "chances.concentration1": [2.0, 0.5],
        "chances.concentration0": [3.0, 3.0],
        "share.concentration": [[1.0, 2.0, 0.3]] * 2,
        "label.probs": [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]],
        "switch.probs": [1 / (1 + math.exp(1.2))],
    }
    for name, value in expected.items():
        torch.testing.assert_close(standard[name], torch.tensor(value, dtype=F64), rtol=1e-6, atol=1e-9)


def test_discrete_sites_keep_their_own_laws_under_every_default():
    mean_field = approximation(MeanField(), MIXED, BATCH)
    members = dict(zip(mean_field.family.names, mean_field.family.members, strict=True))
    assert members == {
        "rate": DiagonalGaussian(1),
        "chances": DiagonalGaussian(2),
        "share": DiagonalGaussian(4),
        "label": Categorical(4, rows=2),
        "switch": Bernoulli(1),
        "weights": DiagonalGaussian(2),
    }
    full = approximation(FullCovariance(), MIXED, BATCH)
    assert full.family.names == ("rate+chances+share+weights", "label", "switch")
    assert full.family.members == (FullGaussian(9), Categorical(4, rows=2), Bernoulli(1))
    assert full.coordinates.names == ("rate", "chances", "share", "weights", "label", "switch")
    own = approximation(PriorFamily(), MIXED, BATCH)
    members = dict(zip(own.family.names, own.family.members, strict=True))
    assert members == FAMILIES | {"weights": DiagonalGaussian(2)}
    with pytest.raises(ProgramError, match=r"the sites \['label'\] are discrete"):
        approximation(FullCovariance(("rate", "label")), MIXED, BATCH)


def changed(name, make):
    def guide(y):
        with poutine.block(hide=[name]):
            mixed_guide(y)
        pyro.sample(name, make())

    return guide


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (changed("label", lambda: dist.Categorical(torch.ones(2, 3))), "'label': Categorical with values in .* cannot"),
        (changed("switch", lambda: dist.Normal(0.0, 1.0)), "'switch': Normal with values in .* cannot stand"),
        (changed("rate", lambda: dist.Bernoulli(0.5)), "'rate': Bernoulli with values in .* cannot stand"),
        (changed("chances", lambda: dist.Gamma(torch.ones(2), 1.0)), "'chances': Gamma has values outside the model's"),
        (changed("switch", lambda: dist.Bernoulli(logits=torch.tensor(math.inf))), "'switch': Bernoulli is no proper"),
        (changed("rate", lambda: dist.InverseGamma(2.0, 1.0)), "'rate': InverseGamma is not a Gaussian"),
    ],
    ids=["categories", "density", "probability", "support", "certain", "inverse gamma"],
)
def test_laws_that_cannot_stand_for_each_other(wrong, message):
    with pytest.raises(ProgramError, match=message):
        approximation(wrong, MIXED, BATCH)


def test_discrete_sites_with_other_values_are_refused():
    def model(y):
        choice = pyro.sample("choice", dist.OneHotCategorical(torch.ones(3)))
        pyro.sample("y", dist.Normal(choice @ y[:3], 1.0).expand([len(y)]).to_event(1), obs=y)

    with pytest.raises(ProgramError, match=r"site 'choice' .* needs the values 0, 1, \.\.\., K - 1"):
        approximation(MeanField(), discover(model, BATCH, "a").shared, BATCH)


@pytest.mark.parametrize("shape", [mixed_guide, PriorFamily(), FullCovariance()], ids=["guide", "prior", "full"])
def test_the_guide_program_draws_every_family(shape):
    found = approximation(shape, MIXED, BATCH)
    natural = found.family.natural_from_free(0.3 * normal(found.family.num_free, seed=2))
    draw = poutine.trace(guide_program(found, lambda: natural))
    points = []
    with torch.random.fork_rng(devices=[]), pyro.validation_enabled(True):
        torch.manual_seed(0)
        for _ in range(500):
            trace = draw.get_trace()
            values = {name: trace.nodes[name]["value"] for name in found.coordinates.names}
            points.append(found.coordinates.unconstrain(values))
    for site in MIXED:
        assert values[site.name].shape == site.shape
        assert values[site.name].is_floating_point() == (site.name != "label")
    expected = log_prob(found.family, natural, points[-1]) - found.coordinates.log_abs_det_jacobian(points[-1])
    torch.testing.assert_close(trace.log_prob_sum(), expected)
    statistics = found.family.statistics(torch.stack(points))
    error = statistics.std(0) / 500**0.5
    assert bool(((statistics.mean(0) - found.family.mean_parameters(natural)).abs() <= 5 * error).all())
