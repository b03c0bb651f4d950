"""Reports and exports of posteriors whose families live on their sites' own supports."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray
from scipy import stats
from small_results import COLUMNS, logistic
from torch.distributions import constraints

from pvi.diagnostics import to_datatree, to_netcdf
from pvi.families import (
    Bernoulli,
    Categorical,
    Coordinates,
    DiagonalGaussian,
    Dirichlet,
    Gamma,
    Product,
    own_coordinates,
    site_coordinates,
)
from pvi.posterior import Posterior
from pvi.report import coefficient_table, render_coefficients


@pytest.fixture(scope="module")
def result():
    """A made-up result: coefficients, a precision, shares of a mixture, and two discrete sites."""
    sites = {
        "weights": (site_coordinates("weights", (3,), constraints.real), DiagonalGaussian(3)),
        "precision": (own_coordinates("precision", (), constraints.positive), Gamma(1)),
        "shares": (own_coordinates("shares", (2,), constraints.simplex), Dirichlet(2)),
        "switch": (own_coordinates("switch", (3,), constraints.boolean), Bernoulli(3)),
        "label": (own_coordinates("label", (), constraints.integer_interval(0, 2)), Categorical(3)),
    }
    family = Product(tuple(sites), tuple(member for _, member in sites.values()))
    coordinates = Coordinates(tuple(site for site, _ in sites.values()))
    free = 0.5 * torch.randn(family.num_free, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    posterior = Posterior(family, family.natural_from_free(free), coordinates)
    return replace(logistic(rounds=1), posterior=posterior, prior=posterior, model=None, data={}, factors={})


def test_the_table_of_coefficients(result):
    table = coefficient_table(result).set_index("coefficient")
    labels = [f"weights[{name}]" for name in COLUMNS] + ["precision", "shares[0]", "shares[1]"]
    assert list(table.index) == [*labels, *(f"switch[{name}]" for name in COLUMNS), "label"]
    assert not any("ratio" in name for name in table)
    standard = result.posterior.family.standard(result.posterior.natural)
    law = stats.gamma(standard["precision.concentration"].item(), scale=1 / standard["precision.rate"].item())
    row = table.loc["precision"]
    assert np.allclose(row[["mean", "sd", "lower", "upper"]], [law.mean(), law.std(), *law.ppf([0.025, 0.975])])
    assert np.isnan(row["p_direction"])
    assert table.loc["weights[age]", "p_direction"] >= 0.5
    # Two shares of one whole: the same spread, mirrored intervals.
    one, other = table.loc["shares[0]"], table.loc["shares[1]"]
    assert one["sd"] == pytest.approx(other["sd"])
    assert one["lower"] == pytest.approx(1 - other["upper"])
    assert render_coefficients(coefficient_table(result)).row_count == len(table)


def test_the_export(result, tmp_path):
    tree = to_datatree(result, num_samples=200)
    assert tree["posterior/shares"].dims == ("chain", "draw", "shares_dim_0")
    assert np.allclose(tree["posterior/shares"].sum("shares_dim_0"), 1)
    assert set(np.unique(tree["posterior/switch"])) <= {0.0, 1.0}
    assert tree["posterior/label"].dtype == np.int64
    draws = {name: torch.as_tensor(tree[f"posterior/{name}"].values[0]) for name in result.posterior.site_names}
    assert np.allclose(tree["sample_stats/log_q"].values[0], result.posterior.log_prob(draws))
    to_netcdf(result, tmp_path / "result.nc", num_samples=50)
    with xarray.open_datatree(tmp_path / "result.nc", engine="h5netcdf") as back:
        assert back["posterior/label"].shape == (1, 50)
