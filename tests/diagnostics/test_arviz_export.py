import json

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray
from small_results import COLUMNS, SIZES, constrained, logistic, regression_data

import pvi
from pvi.diagnostics import to_datatree, to_netcdf

ROWS = sum(SIZES.values())


@pytest.fixture(scope="module")
def result():
    return logistic()


@pytest.fixture(scope="module")
def tree(result):
    return to_datatree(result, num_samples=300, seed=3)


def test_groups_and_dimensions(tree):
    assert set(tree.children) == {
        "posterior", "prior", "sample_stats", "log_likelihood", "observed_data", "constant_data",
        "posterior_predictive",
    }  # fmt: skip
    assert tree["posterior/weights"].dims == ("chain", "draw", "feature")
    assert tree["posterior/weights"].shape == (1, 300, 3)
    assert tuple(tree["posterior/weights"].feature.values) == COLUMNS
    assert tree["posterior/bias"].dims == ("chain", "draw")
    assert tree["log_likelihood/y"].dims == ("chain", "draw", "obs")
    assert tree["posterior_predictive/y"].shape == (1, 300, ROWS)
    assert tree["constant_data/x"].dims == ("obs", "feature")
    assert set(tree["constant_data"].data_vars) == {"x"}


def test_clients_lie_end_to_end(tree):
    observed = tree["observed_data/y"]
    data = regression_data()
    for name, size in SIZES.items():
        rows = observed.client.values == name
        assert rows.sum() == size
        assert (observed.values[rows] == data[name][1].numpy()).all()
        assert (observed.row.values[rows] == np.arange(size)).all()
        assert (tree["constant_data/x"].values[rows] == data[name][0].numpy()).all()


def test_draws_are_those_of_the_posterior(result, tree):
    draws = tree["posterior/weights"].values[0]
    error = result.posterior.sd["weights"].numpy() / np.sqrt(300)
    assert (np.abs(draws.mean(0) - result.posterior.mean["weights"].numpy()) < 5 * error).all()
    assert (np.abs(tree["prior/weights"].values[0].mean(0)) < 5 / np.sqrt(300)).all()


def test_statistics_are_those_of_the_same_draws(result, tree):
    draws = {name: torch.tensor(tree[f"posterior/{name}"].values[0]) for name in ("weights", "bias")}
    assert np.allclose(tree["sample_stats/log_q"].values[0], result.posterior.log_prob(draws))
    likelihood = tree["log_likelihood/y"].values[0].sum(-1)
    assert np.allclose(tree["sample_stats/lp"].values[0], likelihood + result.prior.log_prob(draws).numpy())
    x, y = (torch.cat([pair[part] for pair in regression_data().values()]) for part in (0, 1))
    logits = draws["weights"] @ x.T + draws["bias"][:, None]
    direct = torch.distributions.Bernoulli(logits=logits).log_prob(y)
    assert np.allclose(tree["log_likelihood/y"].values[0], direct)


def test_elbo_is_the_mean_of_lp_minus_log_q(result):
    stats = to_datatree(result, num_samples=1500)["sample_stats"]
    gap = (stats["lp"] - stats["log_q"]).values
    assert abs(gap.mean() - result.elbo) < 5 * gap.std() / np.sqrt(gap.size)


def test_attributes_say_units_and_settings(result, tree):
    assert tree["log_likelihood/y"].attrs["units"] == "nats"
    assert tree.attrs["elbo"] == result.elbo
    assert tree.attrs["elbo_units"] == "nats"
    assert json.loads(tree["sample_stats"].attrs["settings"]) == result.settings
    assert json.loads(tree.attrs["clients"]) == list(SIZES)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter:UserWarning")
def test_arviz_works_on_it(result):
    import arviz as az

    data = result.to_arviz(num_samples=500)
    summary = az.summary(data, kind="stats")
    assert list(summary.index) == [*(f"weights[{name}]" for name in COLUMNS), "bias"]
    loo = az.loo(data)
    elpd = loo.elpd_loo if "elpd_loo" in loo else loo.elpd
    pointwise = to_datatree(result, num_samples=500)["log_likelihood/y"].values[0]
    in_sample = np.logaddexp.reduce(pointwise, 0).sum() - ROWS * np.log(500)
    assert in_sample - 15 < elpd < in_sample


@pytest.mark.filterwarnings("ignore:numpy.ndarray size changed:RuntimeWarning")
def test_netcdf_goes_round(result, tree, tmp_path):
    to_netcdf(result, tmp_path / "posterior.nc", num_samples=300, seed=3)
    with xarray.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as back:
        assert set(back.children) == set(tree.children)
        for name in ("posterior/weights", "observed_data/y", "log_likelihood/y"):
            assert (back[name].values == tree[name].values).all()
        assert list(back["observed_data/y"].client.values) == list(tree["observed_data/y"].client.values)
        assert back.attrs["elbo"] == result.elbo


def test_full_covariance_keeps_correlations():
    result = logistic("full")
    draws = to_datatree(result, num_samples=4000, rows=False)["posterior"]
    stacked = np.column_stack([draws["weights"].values[0], draws["bias"].values[0]])
    family, natural = result.posterior.family, result.posterior.natural
    (member,) = family.members
    covariance = torch.linalg.inv(member.precision_matrix(natural)).numpy()
    scale = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert (np.abs(np.cov(stacked.T) - covariance) < 5 * scale * np.sqrt(2 / 4000)).all()


def test_constrained_sites_stay_in_their_support():
    tree = to_datatree(constrained(), num_samples=200)
    assert (tree["posterior/noise"].values > 0).all()
    assert tree["posterior/weights"].dims == ("chain", "draw", "feature")


def test_a_result_from_disk_has_no_rows(result, tmp_path):
    result.save(tmp_path / "run")
    tree = to_datatree(pvi.load(tmp_path / "run"), num_samples=10)
    assert set(tree.children) == {"posterior", "prior", "sample_stats"}
    assert set(tree["sample_stats"].data_vars) == {"log_q"}


def test_rows_can_be_left_out(result, tmp_path):
    to_netcdf(result, tmp_path / "posterior.nc", num_samples=10, rows=False)
    with xarray.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as back:
        assert set(back.children) == {"posterior", "prior", "sample_stats"}


def test_without_columns_the_dimension_has_the_site_s_name():
    result = pvi.fit("logistic_regression", list(regression_data().values()), rounds=1)
    assert to_datatree(result, num_samples=5)["posterior/weights"].dims == ("chain", "draw", "weights_dim_0")


def transformed(x, y=None):
    """What is observed is no argument of the model."""
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        return pyro.sample("z", dist.Normal(x @ weights, 1.0), obs=None if y is None else 2 * y - 1)


def subsampled(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x), subsample_size=4) as rows:
        pyro.sample("y", dist.Normal(x[rows] @ weights, 1.0), obs=None if y is None else y[rows])


def two_outcomes(x, y=None, size=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    mean = x @ weights
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        pyro.sample("size", dist.Normal(mean[:, None].expand(-1, 2), 1.0).to_event(1), obs=size)


def short_fit(model, clients):
    solver = pvi.solvers.SVI(steps=10, window=5)
    return pvi.fit(model, clients, rounds=1, damping=0.1, solver=solver, columns=COLUMNS)


def test_observations_that_are_no_argument_are_not_predicted():
    tree = to_datatree(short_fit(transformed, regression_data()), num_samples=5)
    assert "posterior_predictive" not in tree.children
    assert set(np.unique(tree["observed_data/z"].values)) == {-1, 1}
    assert tree["log_likelihood/z"].shape == (1, 5, ROWS)


def test_models_that_draw_their_own_rows_have_no_row_groups():
    tree = to_datatree(short_fit(subsampled, regression_data()), num_samples=5)
    assert set(tree.children) == {"posterior", "prior", "sample_stats"}


def test_two_observed_sites_of_different_shape():
    clients = {name: {"x": x, "y": y, "size": torch.stack([y, -y], 1)} for name, (x, y) in regression_data().items()}
    tree = to_datatree(short_fit(two_outcomes, clients), num_samples=5)
    assert tree["observed_data/size"].dims == ("obs", "size_dim_0")
    assert tree["posterior_predictive/size"].shape == (1, 5, ROWS, 2)
    assert tree["log_likelihood/size"].dims == ("chain", "draw", "obs")
    assert set(tree["constant_data"].data_vars) == {"x"}
