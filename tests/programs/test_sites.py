"""What one trace says about a program: shared, private, observed."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.distributions import constraints
from toy_programs import normal, subsampled, unknown_noise

from pvi.programs.batch import as_batch
from pvi.programs.sites import ProgramError, argument_names, discover


def sites_of(model, *data):
    return discover(model, as_batch(data, "here"), "here")


def hierarchy(y, group_mark=None, row_mark=None):
    top = pyro.sample("top", dist.Normal(0.0, 1.0))
    with pyro.plate("groups", 3):
        pyro.sample("group", dist.Normal(top, 1.0), infer={"pvi": group_mark} if group_mark else {})
    with pyro.plate("rows", len(y)):
        row = pyro.sample("row", dist.Normal(top, 1.0), infer={"pvi": row_mark} if row_mark else {})
        pyro.deterministic("twice", 2 * row)
        pyro.sample("y", dist.Normal(row, 1.0), obs=y)


def names(sites):
    return [site.name for site in sites]


def test_latents_among_observations_are_private_others_shared():
    sites = sites_of(hierarchy, normal(4))
    assert names(sites.shared) == ["top", "group"]
    assert names(sites.private) == ["row"]
    assert names(sites.observed) == ["y"]
    assert sites.subsampling is None


def test_marks_overrule_plates():
    sites = sites_of(lambda y: hierarchy(y, "private", "shared"), normal(4))
    assert names(sites.shared) == ["top", "row"]
    assert names(sites.private) == ["group"]


def test_an_unknown_mark_is_refused():
    with pytest.raises(ProgramError, match=r"site 'group': infer=\{\"pvi\": 'local'\} is neither"):
        sites_of(lambda y: hierarchy(y, "local"), normal(4))


def test_what_is_known_of_a_site():
    sites = sites_of(unknown_noise, normal(5))
    loc, scale = sites.shared
    assert (loc.shape, loc.support, loc.distribution, loc.plates) == ((), constraints.real, "Normal", ())
    assert scale.support is constraints.positive
    assert scale.distribution == "LogNormal"
    assert sites.observed[0].plates == ("rows",)
    assert sites.observed[0].shape == (5,)


def test_a_plated_site_has_its_full_shape():
    sites = sites_of(hierarchy, normal(4))
    group = sites.shared[1]
    assert (group.shape, group.plates) == ((3,), ("groups",))


def test_the_subsampling_plate_is_found():
    assert sites_of(subsampled, normal(7)).subsampling == ("rows", 7, 3)
    assert sites_of(lambda y: subsampled(y, 7), normal(7)).subsampling is None


def test_discovery_leaves_global_state_alone():
    torch.manual_seed(3)
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    sites_of(unknown_noise, normal(5))
    sites_of(subsampled, normal(7))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() == dtype
    assert not list(pyro.get_param_store().keys())


def test_constants_in_a_model_get_the_data_precision():
    seen = []

    def model(y):
        loc = pyro.sample("loc", dist.Normal(torch.tensor(0.0), 1.0))
        seen.append(loc.dtype)
        pyro.sample("y", dist.Normal(loc, 1.0).expand([len(y)]).to_event(1), obs=y)

    sites_of(model, normal(3))
    sites_of(model, normal(3).float())
    assert seen == [torch.float64, torch.float32]


def nothing_observed(y):
    pyro.sample("z", dist.Normal(0.0, 1.0))


def discrete(y):
    z = pyro.sample("z", dist.Poisson(2.0))
    pyro.sample("y", dist.Normal(z, 1.0).expand([len(y)]).to_event(1), obs=y)


def out_of_support(y):
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(p), obs=y)


def fails(y):
    raise KeyError("wieghts")


def two_subsamples(y):
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    with pyro.plate("a", 5, subsample_size=2, dim=-1), pyro.plate("b", 5, subsample_size=2, dim=-2):
        pyro.sample("y", dist.Normal(loc, 1.0), obs=torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nothing_observed, r"observes nothing.*obs=y"),
        (discrete, r"site 'z' is a discrete latent \(Poisson\) with too many values"),
        (out_of_support, r"client 'here': observed site 'y' \(Bernoulli\) has the value 2.0 at row 1"),
        (fails, r"client 'here': the model failed on its data \(arguments \[\(2,\)\].*KeyError: 'wieghts'"),
        (two_subsamples, r"plates \['a', 'b'\] both subsample"),
    ],
)
def test_programs_that_cannot_be_used(model, message):
    with pytest.raises(ProgramError, match=message):
        sites_of(model, torch.tensor([1.0, 2.0]))


def test_argument_names():
    assert argument_names(lambda x, y=None, *, z=1: None) == ("x", "y")
    assert argument_names(print) == ()


def test_discrete_latents_among_rows_are_enumerated_others_shared():
    def mixture(y):
        kind = pyro.sample("kind", dist.Categorical(torch.ones(3)))
        with pyro.plate("rows", len(y)):
            side = pyro.sample("side", dist.Bernoulli(0.5))
            pyro.sample("y", dist.Normal(kind + side, 1.0), obs=y)

    sites = sites_of(mixture, normal(4))
    assert names(sites.shared) == ["kind"]
    assert sites.shared[0].is_discrete
    assert names(sites.enumerated) == ["side"]
    assert sites.enumerated[0].by_row
    assert sites.private == ()
    assert sites.plate_nesting == 1


def test_parameters_are_found_with_their_constraints():
    def model(y):
        scale = pyro.param("scale", torch.tensor(2.0), constraint=constraints.positive)
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(loc, scale), obs=y)

    (parameter,) = sites_of(model, normal(4)).parameters
    assert (parameter.name, parameter.value.item(), parameter.constraint) == ("scale", 2.0, constraints.positive)
    assert not list(pyro.get_param_store().keys())
