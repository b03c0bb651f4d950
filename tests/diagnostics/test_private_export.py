"""The export of results whose clients have latents of their own."""

import json

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray
from small_private import by_row, mixed
from small_results import SIZES, regression_data
from torch.distributions import constraints

import pvi
from pvi.diagnostics import to_datatree, to_netcdf

N = 1500
CLIENTS = list(SIZES)


@pytest.fixture(scope="module")
def full():
    return mixed("full")


@pytest.fixture(scope="module")
def tree(full):
    return to_datatree(full, num_samples=N, seed=3)


def test_latents_of_clients_lie_along_the_clients(full, tree):
    effect = tree["posterior/effect"]
    assert effect.dims == ("chain", "draw", "client")
    assert list(effect.client.values) == CLIENTS
    for client, posterior in full.private.items():
        found = effect.sel(client=client).values[0]
        error = float(posterior.sd["effect"]) / np.sqrt(N)
        assert abs(found.mean() - float(posterior.mean["effect"])) < 5 * error


def test_they_belong_to_the_shared_draws(full, tree):
    """Under full covariance the effects and the bias are correlated, as the clients' joint posteriors say."""
    bias = tree["posterior/bias"].values[0]
    for client, local in full.local.items():
        covariance = local.family.standard(local.natural)[f"{'+'.join(local.site_names)}.covariance_matrix"]
        expected = float(covariance[-2, -1] / (covariance[-2, -2] * covariance[-1, -1]).sqrt())
        found = np.corrcoef(bias, tree["posterior/effect"].sel(client=client).values[0])[0, 1]
        assert expected < -0.1
        assert abs(found - expected) < 5 / np.sqrt(N)


def test_the_likelihood_and_the_predictions_are_those_of_each_client(tree):
    bias, weights = tree["posterior/bias"].values[0], tree["posterior/weights"].values[0]
    for client, (x, y) in regression_data().items():
        effect = tree["posterior/effect"].sel(client=client).values[0]
        logits = torch.tensor(weights @ x.numpy().T + (bias + effect)[:, None])
        rows = tree["log_likelihood/y"].client.values == client
        direct = torch.distributions.Bernoulli(logits=logits).log_prob(y)
        assert np.allclose(tree["log_likelihood/y"].values[0][:, rows], direct)
        chance = torch.sigmoid(logits).mean(0).numpy()
        predicted = tree["posterior_predictive/y"].values[0][:, rows].mean(0)
        assert (np.abs(predicted - chance) < 5 * np.sqrt(chance * (1 - chance) / N)).all()


def spread_out(x, y=None):
    """A positive latent of each client: its density has a Jacobian."""
    level = pyro.sample("level", dist.Normal(x.new_tensor(0.0), 1.0))
    noise = pyro.sample("noise", dist.LogNormal(x.new_tensor(0.0), 0.5), infer={"pvi": "private"})
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(level, noise), obs=y)


def positive():
    return pvi.fit(spread_out, regression_data(), rounds=2, damping=0.5, solver=pvi.solvers.SVI(steps=50))


@pytest.mark.parametrize(
    "result", [lambda: mixed("full"), mixed, by_row, positive], ids=["full", "mean field", "by row", "positive"]
)
def test_the_elbo_is_the_mean_of_lp_minus_log_q(result):
    fitted = result()
    stats = to_datatree(fitted, num_samples=N)["sample_stats"]
    gap = (stats["lp"] - stats["log_q"]).values
    error = gap.std() / np.sqrt(gap.size) + fitted.history[-1].elbo_standard_error
    assert abs(gap.mean() - fitted.elbo) < 5 * error


def test_arviz_summary(full):
    import arviz as az

    summary = az.summary(full.to_arviz(num_samples=N), var_names=["effect"], kind="stats")
    assert list(summary.index) == [f"effect[{client}]" for client in CLIENTS]
    expected = [float(posterior.mean["effect"]) for posterior in full.private.values()]
    # ArviZ rounds to three digits.
    assert np.allclose(summary["mean"].astype(float), expected, atol=5 / np.sqrt(N) + 1e-3)


def test_latents_by_row_lie_along_the_rows():
    result = by_row()
    tree = to_datatree(result, num_samples=N)
    effect = tree["posterior/effect"]
    assert effect.dims == ("chain", "draw", "obs")
    assert list(effect.client.values) == ["a"] * 5 + ["b"] * 8
    mean = torch.cat([posterior.mean["effect"] for posterior in result.private.values()]).numpy()
    assert (np.abs(effect.values[0].mean(0) - mean) < 5 * 0.5 / np.sqrt(N)).all()
    assert "posterior_predictive" not in tree.children  # without its counts the model knows no rows
    bare = to_datatree(result, num_samples=5, rows=False)
    assert set(bare["posterior"].data_vars) == {"rate"}
    draws = {"rate": torch.tensor(bare["posterior/rate"].values[0])}
    assert np.allclose(bare["sample_stats/log_q"].values[0], result.posterior.log_prob(draws))


def wards(x, codes, y=None):
    """Effects of a client's wards, of which each has another number; two of each client, and one of each row."""
    level = pyro.sample("level", dist.Normal(x.new_tensor(0.0), 1.0))
    ward = pyro.sample(
        "ward", dist.Normal(x.new_zeros(int(codes.max()) + 1), 1.0).to_event(1), infer={"pvi": "private"}
    )
    own = pyro.sample("own", dist.Normal(x.new_zeros(2), 1.0).to_event(1), infer={"pvi": "private"})
    with pyro.plate("rows", len(x)):
        effect = pyro.sample("effect", dist.Normal(x.new_tensor(0.0), 1.0))
        return pyro.sample("y", dist.Normal(level + ward[codes] + own.sum() + effect, 1.0), obs=y)


def test_other_shapes_are_flat_and_survive_netcdf(tmp_path):
    data = {name: {"x": x, "codes": torch.arange(len(x)) % size, "y": y} for (name, (x, y)), size in zip(
        regression_data().items(), (2, 1, 3), strict=True)}  # fmt: skip
    data = {"nor/th": data["north"], "south": data["south"], "island": data["island"]}
    result = pvi.fit(wards, data, rounds=1, damping=0.5)
    to_netcdf(result, tmp_path / "posterior.nc", num_samples=30)
    with xarray.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as tree:
        ward = tree["posterior/ward"]
        assert ward.dims == ("chain", "draw", "ward_element")
        labels = ["nor/th[0]", "nor/th[1]", "south[0]", "island[0]", "island[1]", "island[2]"]
        assert list(ward.ward_element.values) == labels
        assert tree["posterior/own"].dims == ("chain", "draw", "client", "own_dim_0")
        assert list(tree["posterior"].client.values) == list(data)
        assert tree["posterior/effect"].dims == ("chain", "draw", "obs")
        assert list(tree["log_likelihood/y"].client.values[:1]) == ["nor/th"]
        assert np.isfinite(tree["sample_stats/lp"]).all()


def test_a_result_from_disk_keeps_what_is_no_row(full, tmp_path):
    full.save(tmp_path / "full")
    tree = to_datatree(pvi.load(tmp_path / "full"), num_samples=N, seed=3)
    assert set(tree["posterior"].data_vars) == {"weights", "bias", "effect"}
    assert (
        tree["posterior/effect"].values == to_datatree(full, N, seed=3, rows=False)["posterior/effect"].values
    ).all()
    by_row().save(tmp_path / "rows")
    assert set(to_datatree(pvi.load(tmp_path / "rows"), num_samples=5)["posterior"].data_vars) == {"rate"}


def heavy(x, y=None):
    level = pyro.sample("level", dist.Laplace(x.new_tensor(0.0), 0.3))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(level, 1.0), obs=y)


def test_lp_has_the_model_s_own_prior():
    data = regression_data()
    result = pvi.fit(heavy, data, rounds=2, damping=0.5, solver=pvi.solvers.SVI(steps=30))
    tree = to_datatree(result, num_samples=50)
    level = torch.tensor(tree["posterior/level"].values[0])
    y = torch.cat([pair[1] for pair in data.values()])
    direct = dist.Laplace(0.0, 0.3).log_prob(level) + dist.Normal(level[:, None], 1.0).log_prob(y).sum(1)
    assert np.allclose(tree["sample_stats/lp"].values[0], direct)


def learned(x, y=None):
    noise = pyro.param("noise", x.new_tensor(1.0), constraint=constraints.positive)
    centre = pyro.param("centre", x.new_zeros(2))
    level = pyro.sample("level", dist.Normal(centre.sum(), 1.0))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(level, noise), obs=y)


def test_hyperparameters_are_attributes():
    result = pvi.fit(learned, regression_data(), rounds=2, damping=1.0, learn=["noise"])
    tree = to_datatree(result, num_samples=5)
    found = json.loads(tree.attrs["hyperparameters"])
    assert found == {"noise": pytest.approx(float(result.hyperparameters["noise"])), "centre": [0.0, 0.0]}
    assert found["noise"] != 1
    assert json.loads(tree.attrs["learned"]) == ["noise"]
    assert "hyperparameters" not in to_datatree(mixed(), num_samples=5, rows=False).attrs


def mixture(y):
    centre = pyro.sample("centre", dist.Normal(torch.tensor([-1.0, 1.0]), 2.0).to_event(1))
    with pyro.plate("rows", len(y)):
        second = pyro.sample("second", dist.Bernoulli(torch.tensor(0.3)))
        pyro.sample("y", dist.Normal(centre[second.long()], 0.5), obs=y)


def test_discrete_latents_are_summed_out_of_lp():
    y = torch.linspace(-2, 2, 9, dtype=torch.float64)
    result = pvi.fit(mixture, [(y[:4],), (y[4:],)], rounds=1, damping=0.5, solver=pvi.solvers.SVI(steps=5))
    tree = to_datatree(result, num_samples=20)
    assert set(tree["posterior"].data_vars) == {"centre"}
    centre = torch.tensor(tree["posterior/centre"].values[0])
    parts = dist.Normal(centre[:, None], 0.5).log_prob(y[:, None]) + torch.tensor([0.7, 0.3]).double().log()
    prior = dist.Normal(torch.tensor([-1.0, 1.0]).double(), 2.0).log_prob(centre).sum(1)
    direct = prior + parts.logsumexp(2).sum(1)
    # The model holds 0.3 in single precision.
    assert np.allclose(tree["sample_stats/lp"].values[0], direct, rtol=1e-6)
