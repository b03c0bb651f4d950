"""PM and GM against scikit-learn and draws."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from small_personal import heldout, personal

import pvi
from pvi.diagnostics import heldout_metrics, personal_metrics


@cache
def table() -> pd.DataFrame:
    return personal_metrics(personal(), heldout())


def test_binary_outcomes_against_scikit_learn_on_the_predicted_probabilities():
    result, found = personal(), table()
    assert list(found.index) == ["north", "south", "island", "all clients"]
    names = [f"{name}_{model}" for name in ("log_density", "accuracy", "auroc") for model in ("pm", "gm")]
    assert list(found.columns) == ["n", *names]
    for client, (x, y) in heldout().items():
        for model, who in (("pm", client), ("gm", None)):
            p, row = result.predict_mean(x, client=who)["y"].numpy(), found.loc[client]
            assert row["n"] == len(y)
            assert row[f"log_density_{model}"] == pytest.approx(-log_loss(y, p), rel=1e-9)
            assert row[f"accuracy_{model}"] == accuracy_score(y, p > 0.5)
            assert row[f"auroc_{model}"] == pytest.approx(roc_auc_score(y, p))


def test_the_last_row_weighs_clients_by_their_rows():
    found = table()
    each, last = found.iloc[:-1], found.iloc[-1]
    assert last["n"] == each["n"].sum()
    for name in found.columns[1:]:
        assert last[name] == pytest.approx(np.average(each[name], weights=each["n"]), rel=1e-12)


def test_the_global_columns_are_those_of_the_heldout_table():
    found, shared = table(), heldout_metrics(personal(), heldout())
    assert np.allclose(found["log_density_gm"], shared["log_density"], rtol=1e-12)
    assert np.allclose(found["accuracy_gm"], shared["accuracy"], rtol=1e-12)


def test_draws_come_close_to_the_exact_numbers():
    drawn = personal_metrics(personal(), heldout(), num_samples=4000, method="draws")
    # The spread of log p(y | θ) under these posteriors is below 0.5 a row.
    assert np.allclose(drawn.filter(like="log_density"), table().filter(like="log_density"), atol=5 * 0.5 / 4000**0.5)


def test_clients_without_rows_or_with_one_class():
    data = heldout()
    x, y = data["north"]
    data |= {"north": (x[:0], y[:0]), "island": tuple(part[data["island"][1] == 1] for part in data["island"])}
    found = personal_metrics(personal(), data)
    assert found.loc["north", "n"] == 0
    assert found.loc["north"].drop("n").isna().all()
    assert np.isnan(found.loc["island", "auroc_pm"])
    assert np.isfinite(found.loc["island", "accuracy_pm"])
    assert found.loc["all clients", "auroc_gm"] == found.loc["south", "auroc_gm"]
    empty = personal_metrics(personal(), {"north": (x[:0], y[:0])})
    assert list(empty["n"]) == [0, 0]


def test_real_outcomes_have_a_root_mean_square():
    generator = torch.Generator().manual_seed(0)
    data, truth = {}, {"a": 2.0, "b": -1.0}
    for name, slope in truth.items():
        x = torch.randn(60, 1, generator=generator, dtype=torch.float64)
        data[name] = (x, slope * x[:, 0] + torch.randn(60, generator=generator, dtype=torch.float64))
    algorithm = pvi.PFedBayes(zeta=0.1, learning_rate=0.05, global_learning_rate=0.05)
    result = pvi.fit("linear_regression", data, algorithm=algorithm, rounds=15)
    found = personal_metrics(result, data)
    assert list(found.columns) == ["n", "log_density_pm", "log_density_gm", "rmse_pm", "rmse_gm"]
    for name, (x, y) in data.items():
        alone = LinearRegression().fit(x, y)
        best = float(np.sqrt(np.mean((alone.predict(x) - y.numpy()) ** 2)))
        assert best < found.loc[name, "rmse_pm"] < 1.02 * best
        mean = result.predict_mean(x)["y"]
        assert found.loc[name, "rmse_gm"] == pytest.approx(float((mean - y).square().mean().sqrt()))
    assert found.loc["all clients", "rmse_pm"] == pytest.approx(np.sqrt((found["rmse_pm"][:2] ** 2).mean()))


def test_classes_of_a_network_without_auroc():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 1).long()
    rows = {"a": {"x": x[:15], "y": y[:15], "classes": 3}, "b": {"x": x[15:], "y": y[15:], "classes": 3}}
    result = pvi.fit("bayesian_mlp", rows, algorithm=pvi.PFedBayes(local_iterations=2), rounds=1)
    found = personal_metrics(result, rows, num_samples=20)
    assert list(found.columns) == ["n", "log_density_pm", "log_density_gm", "accuracy_pm", "accuracy_gm"]
    p = result.predict_mean(x=x[:15], classes=3, client="a", num_samples=20)["y"]
    assert found.loc["a", "accuracy_pm"] == accuracy_score(y[:15], p.argmax(-1))


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"no personal posteriors; algorithm='pfedbayes'"):
        personal_metrics(pvi.fit("logistic_regression", heldout(), rounds=1), heldout())
    with pytest.raises(ValueError, match=r"clients \['west'\] have no personal posterior; there are \['north'"):
        personal_metrics(personal(), {"west": heldout()["north"]})
