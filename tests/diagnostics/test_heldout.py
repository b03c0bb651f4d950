import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from small_private import by_row, mixed
from small_results import constrained, logistic, regression_data

import pvi
from pvi.report import heldout_log_density, heldout_metrics

SAMPLES = 500


@pytest.fixture(scope="module")
def result():
    return logistic()


def test_metrics_against_direct_computation(result):
    holdout = regression_data(seed=1)
    table = heldout_metrics(result, holdout, num_samples=SAMPLES, seed=4, method="draws")
    assert list(table.index) == ["north", "south", "island", "all clients"]
    assert list(table.columns) == ["rows", "log_density", "accuracy", "brier"]
    draws = result.posterior.sample(SAMPLES, torch.Generator().manual_seed(4))
    pooled = []
    for client, (x, y) in holdout.items():
        logits = draws["weights"] @ x.T + draws["bias"][:, None]
        p = torch.sigmoid(logits).mean(0)
        density = torch.where(y == 1, p, 1 - p).log()
        pooled.append(density)
        assert table.loc[client, "rows"] == len(y)
        assert math.isclose(table.loc[client, "log_density"], density.mean(), rel_tol=1e-9)
        assert math.isclose(table.loc[client, "accuracy"], ((p > 0.5) == (y == 1)).double().mean())
        assert math.isclose(table.loc[client, "brier"], (p - y).square().mean(), rel_tol=1e-9)
    assert math.isclose(table.loc["all clients", "log_density"], torch.cat(pooled).mean(), rel_tol=1e-9)
    assert table.loc["all clients", "rows"] == sum(len(part) for part in pooled)
    alone = heldout_log_density(result, holdout, SAMPLES, seed=4, method="draws")
    assert math.isclose(alone, torch.cat(pooled).mean(), rel_tol=1e-9)


def test_regressions_need_no_draws(result):
    holdout = regression_data(seed=1)
    table = heldout_metrics(result, holdout)
    pooled = []
    for client, (x, y) in holdout.items():
        # A Bernoulli's density is its mean: one integral checks the other.
        p = result.predict_mean(x, method="quadrature")["y"]
        pooled.append(torch.where(y == 1, p, 1 - p).log())
        assert math.isclose(table.loc[client, "log_density"], pooled[-1].mean(), rel_tol=1e-9)
        assert math.isclose(table.loc[client, "accuracy"], ((p > 0.5) == (y == 1)).double().mean())
        assert math.isclose(table.loc[client, "brier"], (p - y).square().mean(), rel_tol=1e-9)
    assert math.isclose(heldout_log_density(result, holdout), torch.cat(pooled).mean(), rel_tol=1e-9)
    again = heldout_metrics(result, holdout, num_samples=3, seed=8, method="quadrature")
    assert again.equals(table)
    drawn = heldout_metrics(result, holdout, num_samples=4000, method="draws")
    assert (table - drawn).abs().loc[:, ["log_density", "brier"]].max().max() < 0.01


def test_known_clients_of_a_regression_need_no_draws():
    result, holdout = mixed("full"), regression_data(seed=1)
    x, y = holdout["south"]
    strangers = {"elsewhere": (x, y), "nowhere": (x[:3], y[:3])}
    table = heldout_metrics(result, holdout | strangers, num_samples=50, seed=2)
    known = result.log_predictive_density(x, y, client="south", method="quadrature")["y"]
    assert math.isclose(table.loc["south", "log_density"], known.mean(), rel_tol=1e-9)
    drawn = result.log_predictive_density(x, y, num_samples=50, seed=2, method="draws")["y"]
    assert math.isclose(table.loc["elsewhere", "log_density"], drawn.mean(), rel_tol=1e-9)
    with pytest.raises(ValueError, match="no exact predictions"):
        heldout_metrics(result, strangers, method="quadrature")


def test_rows_that_depend_on_others_stay_with_their_client():
    def centred(x, y=None):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            return pyro.sample("y", dist.Bernoulli(logits=(x - x.mean(0)) @ weights), obs=y)

    result, holdout = pvi.fit(centred, regression_data(), rounds=2, damping=0.5), regression_data(seed=1)
    table = heldout_metrics(result, holdout)
    for client, (x, y) in holdout.items():
        own = result.log_predictive_density(x, y, method="quadrature")["y"].mean()
        assert math.isclose(table.loc[client, "log_density"], own, rel_tol=1e-9)


def test_numeric_outcomes_have_an_rmse():
    result = constrained()
    holdout = regression_data(seed=2)
    table = heldout_metrics(result, holdout, num_samples=200)
    assert list(table.columns) == ["rows", "log_density", "rmse"]
    x, y = (torch.cat([pair[part] for pair in holdout.values()]) for part in (0, 1))
    mean = result.predict_mean(x, num_samples=200)["y"]
    assert math.isclose(table.loc["all clients", "rmse"], (mean - y).square().mean().sqrt(), rel_tol=1e-9)


def test_known_clients_are_predicted_with_their_own_latents():
    result, holdout = mixed("full"), regression_data(seed=1)
    new_client = {"elsewhere": holdout["south"]}
    table = heldout_metrics(result, holdout | new_client, num_samples=SAMPLES, seed=4, method="draws")
    pooled = []
    for client, (x, y) in holdout.items():
        draws = result.local[client].sample(SAMPLES, torch.Generator().manual_seed(4))
        logits = draws["weights"] @ x.T + (draws["bias"] + draws["effect"])[:, None]
        p = torch.sigmoid(logits).mean(0)
        density = torch.where(y == 1, p, 1 - p).log()
        pooled.append(density)
        assert math.isclose(table.loc[client, "log_density"], density.mean(), rel_tol=1e-9)
        assert math.isclose(table.loc[client, "brier"], (p - y).square().mean(), rel_tol=1e-9)
    alone = heldout_log_density(result, holdout, SAMPLES, seed=4, method="draws")
    assert math.isclose(alone, torch.cat(pooled).mean(), rel_tol=1e-9)
    x, y = holdout["south"]
    new = result.log_predictive_density(x, y, num_samples=SAMPLES, seed=4)["y"].mean()
    assert math.isclose(table.loc["elsewhere", "log_density"], new, rel_tol=1e-9)
    assert table.loc["elsewhere", "log_density"] != table.loc["south", "log_density"]


def test_latents_by_row_are_new_in_new_rows():
    y = torch.tensor([2.0, 3.0, 1.0], dtype=torch.float64)
    table = heldout_metrics(by_row(), {"a": {"y": y}, "elsewhere": {"y": y}}, num_samples=4000)
    known, new = table.loc[["a", "elsewhere"], "log_density"]
    # The same law from other draws: Monte Carlo errors of about 0.01 each.
    assert abs(known - new) < 0.05


def test_clients_without_rows(result):
    holdout = regression_data(seed=1)
    x, y = holdout["north"]
    table = heldout_metrics(result, holdout | {"north": (x[:0], y[:0])}, num_samples=50)
    assert table.loc["north", "rows"] == 0
    assert math.isnan(table.loc["north", "accuracy"])
    assert np.isfinite(table.loc["all clients"]).all()
    none = {"north": (x[:0], y[:0])}
    assert math.isnan(heldout_log_density(result, none))
    assert heldout_metrics(result, none).loc["all clients", "rows"] == 0


def test_dicts_of_tensors(result):
    x, y = regression_data(seed=1)["south"]
    first = heldout_metrics(result, {"a": {"x": x, "y": y}}, num_samples=50)
    assert first.equals(heldout_metrics(result, {"a": (x, y)}, num_samples=50))


def test_rows_without_outcomes_are_refused(result):
    with pytest.raises(ValueError, match="no observations"):
        heldout_metrics(result, {"a": (regression_data()["south"][0],)}, num_samples=5)


def test_a_result_without_its_model(result, tmp_path):
    result.save(tmp_path)
    description = (tmp_path / "result.json").read_text().replace('"logistic_regression"', '"lost.module:model"')
    (tmp_path / "result.json").write_text(description)
    with pytest.raises(ValueError, match="without its model"):
        heldout_metrics(pvi.load(tmp_path), regression_data(), num_samples=5)


def test_classes_have_an_accuracy_and_a_brier_score():
    x, _ = regression_data()["south"]
    y = torch.arange(len(x)) % 3
    data = {"a": {"x": x, "y": y, "depth": 0, "classes": 3}}
    result = pvi.fit("bayesian_mlp", data, solver=pvi.solvers.SVI(steps=20), rounds=1)
    table = heldout_metrics(result, data, num_samples=100, seed=4)
    assert list(table.columns) == ["rows", "log_density", "accuracy", "brier"]
    draws = result.posterior.sample(100, torch.Generator().manual_seed(4))
    logits = torch.einsum("nd,skd->snk", x, draws["weights_1"]) + draws["bias_1"][:, None]
    p = logits.softmax(-1).mean(0)
    truth = torch.eye(3, dtype=torch.float64)[y]
    assert math.isclose(table.loc["a", "log_density"], (p * truth).sum(-1).log().mean(), rel_tol=1e-9)
    assert math.isclose(table.loc["a", "accuracy"], (p.argmax(-1) == y).double().mean())
    assert math.isclose(table.loc["a", "brier"], (p - truth).square().sum(-1).mean(), rel_tol=1e-9)
