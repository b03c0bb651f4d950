"""Families from guides: mean field, groups of full covariance, hand-written programs."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.autoguide import AutoNormal
from torch.distributions import biject_to, constraints
from toy_programs import F64, normal

from pvi.families import DiagonalGaussian, FullGaussian, log_prob
from pvi.programs.batch import as_batch
from pvi.programs.guide_program import guide_program
from pvi.programs.guides import FullCovariance, MeanField, approximation
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
        (complete({"scale": lambda: dist.Gamma(2.0, 1.0)}), r"guide site 'scale': Gamma is not a Gaussian"),
        (complete({"share": lambda: dist.Dirichlet(torch.ones(3))}), r"guide site 'share': Dirichlet is not a Gaus"),
        (complete({"weights": lambda: dist.Normal(torch.zeros(3), 1.0).to_event(1)}), r"has shape \(3,\), the model"),
        (dependent, "guide site 'scale' depends on a random value"),
    ],
    ids=["missing", "autoguide", "student", "gamma", "dirichlet", "shape", "dependent"],
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
