"""Results on disk: exact, complete, and without a client's rows."""

import json
import math
from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch
from safetensors.torch import load_file
from torch.distributions import constraints
from toy_programs import F64, normal

import pvi
from pvi.checkpoint import CheckpointError, load
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
from pvi.solvers import SVI
from pvi.spaces import constraint_from_json, constraint_to_json

X = normal(12, 2, seed=1)
Y = (X[:, 0] > 0.123456789).to(F64)
CLIENTS = {"first": (X[:7], Y[:7]), "second": (X[7:], Y[7:])}


@pytest.fixture(scope="module")
def result():
    return pvi.fit("logistic_regression", CLIENTS, rounds=3, damping=0.5, columns=["age", "dose"])


def assert_same(first, second):
    assert torch.equal(first.posterior.natural, second.posterior.natural)
    assert torch.equal(first.prior.natural, second.prior.natural)
    assert first.posterior.family == second.posterior.family
    for one, other in zip(first.posterior.coordinates.sites, second.posterior.coordinates.sites, strict=True):
        assert (one.name, one.shape, one.unconstrained_shape) == (other.name, other.shape, other.unconstrained_shape)
        assert repr(one.support) == repr(other.support)
    assert list(first.factors) == list(second.factors)
    for one, other in zip(first.factors.values(), second.factors.values(), strict=True):
        assert torch.equal(one.natural, other.natural)
        assert torch.equal(one.log_scale, other.log_scale)
    assert first.history == second.history
    assert (first.observed, first.columns, first.settings) == (second.observed, second.columns, second.settings)


def test_what_was_saved_is_loaded(result, tmp_path):
    result.save(tmp_path / "new" / "folder")
    again = load(tmp_path / "new" / "folder")
    assert_same(result, again)
    assert again.model is not None
    assert again.model_name == "logistic_regression"
    assert again.columns == ("age", "dose")
    draws, expected = again.predict(X, num_samples=5, seed=1), result.predict(X, num_samples=5, seed=1)
    assert torch.equal(draws["y"], expected["y"])


def test_saving_twice_overwrites(result, tmp_path):
    result.save(tmp_path)
    result.save(tmp_path)
    assert_same(result, load(tmp_path))


def test_no_rows_are_saved(result, tmp_path):
    result.save(tmp_path)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["factors.safetensors", "posterior.safetensors", "result.json"]
    text = (tmp_path / "result.json").read_text()
    assert not any(f"{value:.6f}" in text for value in X.flatten().tolist())
    size = result.posterior.natural.numel()
    for name, count in (("posterior", 2), ("factors", 4)):
        tensors = load_file(tmp_path / f"{name}.safetensors")
        assert len(tensors) == count
        assert all(value.numel() in (1, size) for value in tensors.values())


def constrained(y):
    pyro.sample("loc", dist.Normal(0.0, 1.0))
    pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("groups", 2):
        pyro.sample("group", dist.Normal(0.0, 1.0))
    base = dist.Normal(torch.zeros(3), 1.0).to_event(1)
    share = pyro.sample(
        "share", dist.TransformedDistribution(base, [torch.distributions.biject_to(constraints.simplex)])
    )
    pyro.sample("y", dist.Normal(share[0], 1.0).expand([len(y)]).to_event(1), obs=y)


@pytest.mark.parametrize("guide", [None, "full", pvi.FullCovariance(("scale", "loc"))], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constrained_sites_groups_and_precisions(guide, dtype, tmp_path):
    solver = SVI(steps=2, num_particles=1)
    found = pvi.fit(constrained, [(Y[:4],), (Y[4:],)], guide=guide, rounds=1, solver=solver, dtype=dtype)
    found.save(tmp_path)
    again = load(tmp_path)
    assert_same(found, again)
    assert again.posterior.natural.dtype == dtype
    torch.testing.assert_close(again.posterior.mean, found.posterior.mean)
    assert again.history[0].clients["client 0"].solver is not None


def test_a_model_that_cannot_be_found_leaves_the_posterior(tmp_path):
    def model(y):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", 4):
            pyro.sample("y", dist.Normal(loc, 1.0), obs=y)

    found = pvi.fit(model, [(Y[:4],)], rounds=1)
    found.save(tmp_path)
    again = load(tmp_path)
    assert again.model is None
    assert_same(found, again)
    with pytest.raises(ValueError, match="model"):
        again.predict(Y[:4])
    assert load(tmp_path, model).model is model


@pytest.mark.parametrize("name", ["result.json", "posterior.safetensors", "factors.safetensors"])
def test_missing_and_damaged_files_are_named(name, result, tmp_path):
    result.save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=f"holds no saved result: .*{name}.* is missing|holds no saved result"):
        load(tmp_path)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path)


def test_other_formats_are_refused(result, tmp_path):
    result.save(tmp_path)
    description = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(description | {"format": 99}))
    with pytest.raises(CheckpointError, match="has format 99, this version reads 1"):
        load(tmp_path)


def test_a_family_of_a_newer_version_is_refused(result, tmp_path):
    result.save(tmp_path)
    text = (tmp_path / "result.json").read_text().replace("DiagonalGaussian", "Wishart")
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(CheckpointError, match="family 'Wishart'"):
        load(tmp_path)


def test_families_on_their_own_supports(result, tmp_path):
    sites = {
        "weights": (site_coordinates("weights", (2,), constraints.real), FullGaussian(2)),
        "rate": (own_coordinates("rate", (2,), constraints.positive), Gamma(2)),
        "log rate": (site_coordinates("log rate", (), constraints.positive), DiagonalGaussian(1)),
        "chance": (own_coordinates("chance", (), constraints.unit_interval), Beta(1)),
        "shares": (own_coordinates("shares", (2, 3), constraints.simplex), Dirichlet(3, rows=2)),
        "switch": (own_coordinates("switch", (), constraints.boolean), Bernoulli(1)),
        "label": (own_coordinates("label", (2,), constraints.integer_interval(0, 3)), Categorical(4, rows=2)),
    }
    family = Product(tuple(sites), tuple(member for _, member in sites.values()))
    natural = family.natural_from_free(0.3 * normal(family.num_free, seed=4))
    posterior = Posterior(family, natural, Coordinates(tuple(site for site, _ in sites.values())))
    replace(result, posterior=posterior, prior=posterior, factors={}).save(tmp_path)
    again = load(tmp_path).posterior
    assert torch.equal(again.natural, natural)
    assert again.family == family
    for one, other in zip(posterior.coordinates.sites, again.coordinates.sites, strict=True):
        assert (one.name, one.shape, one.is_real, one.is_integer) == (
            other.name, other.shape, other.is_real, other.is_integer,
        )  # fmt: skip
    draws = posterior.sample(4, torch.Generator().manual_seed(0))
    for name, value in again.sample(4, torch.Generator().manual_seed(0)).items():
        assert torch.equal(value, draws[name])
        assert value.dtype == draws[name].dtype
    assert torch.equal(again.log_prob(draws), posterior.log_prob(draws))


def test_results_that_say_nothing_of_coordinates_are_unconstrained(result, tmp_path):
    """As the first version wrote them."""
    result.save(tmp_path)
    description = json.loads((tmp_path / "result.json").read_text())
    for site in description["sites"]:
        del site["own"]
    (tmp_path / "result.json").write_text(json.dumps(description))
    assert_same(result, load(tmp_path))


def test_a_family_that_cannot_be_saved_is_named(result, tmp_path):
    class Mine(DiagonalGaussian):
        """A family from elsewhere."""

    family = Product(("weights",), (Mine(2),))
    coordinates = Coordinates((site_coordinates("weights", (2,), constraints.real),))
    posterior = Posterior(family, family.natural_from_free(torch.zeros(4)), coordinates)
    with pytest.raises(CheckpointError, match="site 'weights': cannot save the family Mine; there are"):
        replace(result, posterior=posterior, prior=posterior).save(tmp_path)


SUPPORTS = [
    constraints.real,
    constraints.positive,
    constraints.nonnegative,
    constraints.unit_interval,
    constraints.real_vector,
    constraints.simplex,
    constraints.corr_cholesky,
    constraints.lower_cholesky,
    constraints.positive_definite,
    constraints.greater_than(1.5),
    constraints.greater_than_eq(-2.0),
    constraints.less_than(3.0),
    constraints.interval(-1.0, 2.5),
    constraints.half_open_interval(0.0, 2.0),
    constraints.independent(constraints.positive, 2),
    constraints.independent(constraints.independent(constraints.interval(0.0, 2.0), 1), 1),
    dist.MultivariateNormal(torch.zeros(2), torch.eye(2)).support,
    dist.HalfCauchy(1.0).support,
    dist.LogNormal(0.0, 1.0).to_event(0).support,
    dist.Uniform(-1.0, 4.0).support,
    dist.LKJCholesky(3).support,
    dist.Pareto(2.0, 1.0).support,
    dist.Beta(torch.ones(3), 1.0).to_event(1).support,
    dist.Gamma(1.0, 1.0).support,
    dist.Bernoulli(0.5).support,
    dist.Categorical(torch.ones(4)).to_event(0).support,
    dist.Categorical(torch.ones(2, 4)).to_event(1).support,
]


@pytest.mark.parametrize("support", SUPPORTS, ids=repr)
def test_supports_survive(support):
    description = json.loads(json.dumps(constraint_to_json(support, "site")))
    again = constraint_from_json(description)
    assert type(again) is type(support)
    assert repr(again) == repr(support)
    assert again.event_dim == support.event_dim
    for value in (-1.5, -0.5, 0.0, 0.5, 1.7, 3.5):
        if support.event_dim == 0:
            point = torch.tensor(value)
            assert bool(again.check(point)) == bool(support.check(point))


@pytest.mark.parametrize(
    "support",
    [constraints.interval(torch.zeros(2), torch.tensor([1.0, 2.0])), constraints.cat([constraints.real], lengths=[2])],
    ids=["bounds by element", "cat"],
)
def test_supports_without_a_description_are_refused_by_site(support):
    with pytest.raises(CheckpointError, match="site 'theta': cannot save its support"):
        constraint_to_json(support, "theta")


def test_numbers_that_are_not_finite_survive(result, tmp_path):
    odd = result.history[-1]._replace(elbo=-math.inf)
    changed = type(result)(**{**vars(result), "history": [*result.history[:-1], odd]})
    changed.save(tmp_path)
    assert load(tmp_path).history[-1].elbo == -math.inf
