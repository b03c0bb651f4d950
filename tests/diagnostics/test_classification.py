"""Metrics of predicted classes against scikit-learn, brute force and cases worked out by hand."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics
from small_private import mixed
from small_results import constrained, logistic, regression_data

import pvi
from pvi.diagnostics import (
    calibration_error,
    calibration_table,
    classification_metrics,
    difference_interval,
    heldout_classification,
    heldout_metrics,
    heldout_probabilities,
    mean_interval,
    reliability,
)


def binary(n=400, seed=0):
    generator = np.random.default_rng(seed)
    p = generator.beta(0.7, 1.2, n).round(2)  # with ties, and numbers on the bins' edges
    return p, (generator.random(n) < p**1.3).astype(int)


def several(n=300, classes=4, seed=0):
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.full(classes, 0.5), n)
    return p, np.array([generator.choice(classes, p=row) for row in p])


def gap_by_hand(confidence, hit, bins):
    """Guo et al. (2017), equation 3, row by row: B_b holds the rows with confidence in (b / bins, (b + 1) / bins]."""
    total = 0.0
    for b in range(bins):
        inside = [i for i, c in enumerate(confidence) if (c > b / bins or (b == 0 and c == 0)) and c <= (b + 1) / bins]
        if inside:
            accuracy = sum(hit[i] for i in inside) / len(inside)
            average = sum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - average)
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_binary_against_scikit_learn(bins):
    p, y = binary()
    keep = (p > 0) & (p < 1)  # scikit-learn clips its logarithms
    found = classification_metrics(p[keep], y[keep], bins=bins)
    assert list(found) == ["log_likelihood", "accuracy", "error", "brier", "ece", "auroc", "auprc"]
    p, y = p[keep], y[keep]
    assert found["log_likelihood"] == pytest.approx(-metrics.log_loss(y, p), rel=1e-12)
    assert found["accuracy"] == metrics.accuracy_score(y, p > 0.5)
    assert found["error"] == pytest.approx(1 - found["accuracy"])
    assert found["brier"] == pytest.approx(metrics.brier_score_loss(y, p), rel=1e-12)
    assert found["auroc"] == pytest.approx(metrics.roc_auc_score(y, p), rel=1e-12)
    assert found["auprc"] == pytest.approx(metrics.average_precision_score(y, p), rel=1e-12)
    assert found["ece"] == pytest.approx(gap_by_hand(p, y, bins), rel=1e-12)
    pairs = [(a > b) + (a == b) / 2 for a in p[y == 1] for b in p[y == 0]]
    assert found["auroc"] == pytest.approx(np.mean(pairs), rel=1e-12)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_several_classes_against_scikit_learn(bins):
    p, y = several()
    found = classification_metrics(torch.tensor(p), torch.tensor(y), bins=bins)
    assert list(found) == ["log_likelihood", "accuracy", "error", "brier", "ece"]
    assert found["log_likelihood"] == pytest.approx(-metrics.log_loss(y, p, labels=range(4)), rel=1e-12)
    assert found["accuracy"] == metrics.accuracy_score(y, p.argmax(1))
    one_hot = np.eye(4)[y]
    assert found["brier"] == pytest.approx(np.mean([((a - b) ** 2).sum() for a, b in zip(p, one_hot, strict=True)]))
    assert found["ece"] == pytest.approx(gap_by_hand(p.max(1), p.argmax(1) == y, bins), rel=1e-12)


def test_by_hand():
    found = classification_metrics([0.9, 0.6, 0.2, 0.4], [1, 0, 0, 1], bins=2)
    assert found["log_likelihood"] == pytest.approx(math.log(0.9 * 0.4 * 0.8 * 0.4) / 4)
    assert found["accuracy"] == 0.5
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.04 + 0.36) / 4)
    # (0, ½]: 0.2 and 0.4, half of them positive; (½, 1]: 0.6 and 0.9, half of them positive.
    assert found["ece"] == pytest.approx((abs(0.5 - 0.3) + abs(0.5 - 0.75)) / 2)
    assert found["auroc"] == 0.75
    # The likeliest class instead: 0.9, 0.6, 0.8 and 0.6 are all in (½, 1], and half of them right.
    p = np.array([0.9, 0.6, 0.2, 0.4])
    assert calibration_error(np.stack([1 - p, p], 1), [1, 0, 0, 1], 2) == pytest.approx(abs(0.5 - 2.9 / 4))


def test_edges():
    sure = classification_metrics([0.0, 1.0, 0.5], [0, 1, 0])
    assert sure["log_likelihood"] == pytest.approx(math.log(0.5) / 3)
    assert sure["accuracy"] == 1.0  # ½ counts as class 0
    assert classification_metrics([0.0, 0.3], [1, 0])["log_likelihood"] == -math.inf
    alone = classification_metrics([0.2, 0.7], [1, 1])
    assert math.isnan(alone["auroc"])
    assert math.isnan(alone["auprc"])
    assert alone["accuracy"] == 0.5
    assert all(math.isnan(value) for value in classification_metrics([], []).values())
    assert all(math.isnan(value) for value in classification_metrics(np.zeros((0, 3)), []).values())


@pytest.mark.parametrize(
    ("p", "y", "said"),
    [
        ([0.2, 1.2], [0, 1], "row 1 has the probabilities 1.2"),
        ([0.2, math.nan], [0, 1], "row 1 has the probabilities nan"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 1], r"row 1 has the probabilities \[0.5, 0.4\]"),
        ([0.2, 0.3, 0.1], [0, 1, 2], "row 2 has the label 2; labels must be 0, ..., 1"),
        ([0.2, 0.3], [0, 0.5], "row 1 has the label 0.5"),
        ([0.2, 0.3], [0], r"got \[2\] and \[1\]"),
        ([[0.2], [0.3]], [0, 1], r"K >= 2"),
    ],
)
def test_refused(p, y, said):
    with pytest.raises(ValueError, match=said):
        classification_metrics(p, y)
    with pytest.raises(ValueError, match="bins must be at least 1"):
        calibration_table([0.5], [1], 0)


def test_the_table_s_intervals_are_those_of_scipy():
    p, y = binary()
    table = calibration_table(p, y, 12)
    assert table["rows"].sum() == len(y)
    for row in table.itertuples():
        inside = (p > row.lower) & (p <= row.upper) | ((p == 0) & (row.lower == 0))
        assert row.rows == inside.sum()
        assert row.frequency == pytest.approx(y[inside].mean())
        ends = stats.binomtest(int(y[inside].sum()), int(inside.sum())).proportion_ci(0.95, method="exact")
        assert (row.frequency_lower, row.frequency_upper) == pytest.approx((ends.low, ends.high), abs=1e-12)
    empty = calibration_table([0.05, 0.06], [0, 1], 10).iloc[1:]
    assert empty[["confidence", "frequency", "frequency_lower", "frequency_upper"]].isna().all().all()


def test_heldout_rows_of_all_clients_together():
    result, holdout = logistic(), regression_data(seed=1)
    found = heldout_classification(result, holdout)
    x, y = (torch.cat([pair[part] for pair in holdout.values()]) for part in (0, 1))
    p, labels = heldout_probabilities(result, holdout)
    assert np.array_equal(labels, y)
    np.testing.assert_allclose(p, result.predict_mean(x)["y"], rtol=1e-12)
    assert found == pytest.approx(classification_metrics(p, y), rel=1e-9)
    table = heldout_metrics(result, holdout).loc["all clients"]
    for mine, theirs in (("log_likelihood", "log_density"), ("accuracy", "accuracy"), ("brier", "brier")):
        assert found[mine] == pytest.approx(table[theirs], rel=1e-9)
    for one in ((x, y), {"x": x, "y": y}, {"a": {"x": x, "y": y}}, [x, y]):
        assert heldout_classification(result, one) == pytest.approx(found, rel=1e-9)
    empty = {name: (x[:0], y[:0]) for name, (x, y) in holdout.items()}
    assert all(math.isnan(value) for value in heldout_classification(result, empty).values())


def test_sure_predictions_keep_their_digits():
    result = logistic()
    x = 100 * torch.tensor([[-1.0, 0.0, 1.0]], dtype=torch.float64)
    y = (result.predict_mean(x)["y"] < 0.5).double()
    found = heldout_classification(result, (x, y))
    assert found["log_likelihood"] == pytest.approx(result.log_predictive_density(x, y)["y"].item())
    assert math.isfinite(found["log_likelihood"])


def test_known_clients_and_draws():
    result, holdout = mixed("full"), regression_data(seed=1)
    found = heldout_classification(result, holdout, num_samples=300, seed=5, method="draws")
    table = heldout_metrics(result, holdout, num_samples=300, seed=5, method="draws").loc["all clients"]
    assert found["log_likelihood"] == pytest.approx(table["log_density"], rel=1e-9)
    assert found["brier"] == pytest.approx(table["brier"], rel=1e-9)
    exact = heldout_classification(result, holdout)
    assert exact["log_likelihood"] == pytest.approx(found["log_likelihood"], abs=0.02)
    assert exact != found


def test_several_classes_of_a_result():
    x, _ = regression_data()["south"]
    y = torch.arange(len(x)) % 3
    data = {"a": {"x": x, "y": y, "depth": 0, "classes": 3}}
    result = pvi.fit("bayesian_mlp", data, solver=pvi.solvers.SVI(steps=20), rounds=1)
    found = heldout_classification(result, data, num_samples=50, seed=4)
    table = heldout_metrics(result, data, num_samples=50, seed=4).loc["a"]
    assert "auroc" not in found
    assert found["log_likelihood"] == pytest.approx(table["log_density"], rel=1e-9)
    assert found["accuracy"] == table["accuracy"]
    assert found["brier"] == pytest.approx(table["brier"], rel=1e-9)


def test_outcomes_that_are_no_classes():
    with pytest.raises(ValueError, match=r"client 'north': site 'y' \(Normal\).*classes are one Bernoulli"):
        heldout_classification(constrained(), regression_data(seed=1))


def test_intervals_of_repeated_runs():
    values = np.random.default_rng(0).normal(0.8, 0.02, 10)
    found = mean_interval(values)
    test = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert tuple(found) == pytest.approx((values.mean(), test.low, test.high), rel=1e-12)
    other = values + np.linspace(0, 0.01, 10)
    paired = stats.ttest_rel(other, values).confidence_interval(0.95)
    assert tuple(difference_interval(other, values)) == pytest.approx((0.005, paired.low, paired.high), rel=1e-9)
    alone = mean_interval([0.5])
    assert alone.mean == 0.5
    assert math.isnan(alone.lower)
    assert math.isnan(mean_interval([0.5, math.nan]).mean)
    with pytest.raises(ValueError, match="at least one number"):
        mean_interval([])
    with pytest.raises(ValueError, match="equally many"):
        difference_interval([1.0, 2.0], [1.0])


@pytest.mark.parametrize("data", [binary(), several()])
def test_a_reliability_diagram(data, tmp_path):
    figure = reliability(*data, path=tmp_path / "picture.png", bins=10, title="a model")
    assert (tmp_path / "picture.png").stat().st_size > 5000
    above, below = figure.axes
    table = calibration_table(*data, bins=10)
    table = table[table["rows"] > 0]
    points = above.containers[0].lines[0].get_xydata()
    np.testing.assert_allclose(points, table[["confidence", "frequency"]])
    assert [bar.get_height() for bar in below.patches if bar.get_height()] == table["rows"].tolist()
    assert above.get_title(loc="left").startswith(f"a model: calibration error {calibration_error(*data, bins=10):.3f}")
    with pytest.raises(ValueError, match="no rows"):
        reliability([], [])
