"""Intervals, claims and pictures of curves that are made up."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from pvi.experiments.claims import answer, answered, at_least, at_most, falls_short, matches, reaches
from pvi.experiments.figures import plot_curves
from pvi.experiments.protocol import Claim
from pvi.experiments.summary import difference, differences, interval, table, values


def curves(seeds=3, **methods):
    """Two rounds of each method and seed: the last values by metric, one a seed or for all."""
    rows = []
    for seed in range(seeds):
        for method, metrics in methods.items():
            for number in (1, 2):
                found = {
                    name: np.broadcast_to(value, seeds)[seed] + (number - 2) * 0.3 for name, value in metrics.items()
                }
                rows.append(
                    {"seed": seed, "method": method, "round": number, "messages": 4 * number, "seconds": 0.1} | found
                )
    return pd.DataFrame(rows)


def test_intervals_are_students():
    found = [0.81, 0.84, 0.79, 0.85, 0.83]
    low, high = t.interval(0.95, 4, loc=np.mean(found), scale=np.std(found, ddof=1) / np.sqrt(5))
    ours = interval(found)
    assert (ours.mean - ours.half, ours.mean + ours.half, ours.n) == pytest.approx((low, high, 5))
    assert ours.text(3) == f"0.824 ± {(high - low) / 2:.3f}"
    assert interval([0.5]).text(2) == "0.50"
    assert interval([-1234.5, -1234.5]).text(1) == "-1,234.5 ± 0.0"


def test_values_that_are_not_finite_show():
    assert interval([1.0, np.inf]).text(2) == "inf"
    assert interval([-np.inf]).text(2) == "-inf"
    assert interval([1.0, np.nan]).text(2) == ""


def test_differences_are_of_pairs():
    found = curves(PVI={"accuracy": [0.7, 0.8, 0.9]}, best={"accuracy": [0.71, 0.82, 0.9]})
    ours = difference(found, "PVI", "best", "accuracy")
    low, high = t.interval(0.95, 2, loc=-0.01, scale=np.std([-0.01, -0.02, 0], ddof=1) / np.sqrt(3))
    assert (ours.mean - ours.half, ours.mean + ours.half) == pytest.approx((low, high))
    fewer = found[(found["method"] == "PVI") | (found["seed"] == 1)]
    assert difference(fewer, "PVI", "best", "accuracy") == pytest.approx((-0.02, 0, 1))
    assert difference(found, "PVI", "VCL", "accuracy") is None
    assert difference(found, "PVI", "best", "error") is None
    assert values(found, "PVI", "accuracy").to_dict() == {0: 0.7, 1: 0.8, 2: 0.9}


def test_differences_of_all_methods():
    found = curves(PVI={"accuracy": [0.7, 0.8, 0.9], "kl": 1.0}, best={"accuracy": [0.6, 0.7, 0.8], "kl": 0.0})
    shown = differences(found, "best", ["accuracy", "kl", "error"])
    assert shown.index.tolist() == ["PVI"]
    assert shown.index.name == "less best"
    assert shown.to_dict("records") == [{"accuracy": "+0.1000 ± 0.0000"}]
    assert not len(differences(found, "nobody", ["accuracy"]))


def test_at_least():
    found = curves(PVI={"auroc": [0.79, 0.82, 0.81]})
    assert at_least("PVI", "auroc", 0.8)(found).holds is True
    assert at_least("PVI", "auroc", 0.81)(found).holds is False
    assert at_least("VCL", "auroc", 0.8)(found).holds is None
    assert "0.8067 ± 0.0379" in at_least("PVI", "auroc", 0.8)(found).measured


def test_the_table():
    found = table(curves(PVI={"accuracy": [0.7, 0.8, 0.9]}, VCL={"elbo": -1234.5}), ("accuracy", "elbo"))
    assert found.index.tolist() == ["PVI", "VCL"]
    assert found.columns.tolist() == ["seeds", "rounds", "messages", "accuracy", "ELBO", "seconds"]
    assert found.loc["PVI"].tolist() == ["3", "2", "8", "0.8000 ± 0.2484", "", "0.1"]
    assert found.loc["VCL", "ELBO"] == "-1,234.50 ± 0.00"
    plain = table(curves(PVI={"accuracy": [0.7, 0.8, 0.9]}), ("accuracy", "elbo"), intervals=False)
    assert plain.loc["PVI", ["accuracy", "ELBO"]].tolist() == ["0.8000", ""]


@pytest.mark.parametrize(
    ("metric", "own", "other", "tolerance", "does"),
    [
        ("accuracy", 0.80, 0.81, 0.02, True),
        ("accuracy", 0.78, 0.81, 0.02, False),
        ("accuracy", 0.90, 0.81, 0.02, True),  # better is no failure
        ("error", 0.21, 0.20, 0.02, True),
        ("error", 0.23, 0.20, 0.02, False),
        ("error", 0.10, 0.20, 0.02, True),
    ],
)
def test_reaching_and_falling_short(metric, own, other, tolerance, does):
    found = curves(PVI={metric: own}, best={metric: other})
    reached = reaches("PVI", "best", metric, tolerance)(found)
    assert reached.holds is does
    assert falls_short("PVI", "best", metric, tolerance)(found).holds is not does
    assert f"{own - other:+.4f} ± 0.0000 against best" in reached.measured


def test_known_values_and_bounds():
    found = curves(PVI={"elbo": [-205.7, -300, -400], "elbo_gap": [1.2, 5, 5]})
    assert matches("PVI", "elbo", -205.67, 0.05)(found).holds is True
    assert matches("PVI", "elbo", -205.67, 0.01)(found).holds is False
    assert matches("PVI", "elbo", -300, 0.01, seed=1)(found).holds is True
    assert at_most("PVI", "elbo_gap", 1.2, after=2)(found).holds is True
    assert at_most("PVI", "elbo_gap", 1.0, after=2)(found).holds is False
    assert at_most("PVI", "elbo_gap", 1.0, after=1)(found).holds is True  # 0.9
    assert "ELBO gap 0.900 after 1 rounds (seed 0)" in at_most("PVI", "elbo_gap", 1.0, after=1)(found).measured


@pytest.mark.parametrize("found", [curves(VCL={"elbo": -3}), curves(PVI={"accuracy": 1}), curves(PVI={"elbo": np.nan})])
def test_what_was_not_run_is_no_answer(found):
    asked = [
        matches("PVI", "elbo", 0, 1),
        matches("PVI", "elbo", 0, 1, seed=9),
        at_most("PVI", "elbo", 0, after=2),
        at_most("PVI", "elbo", 0, after=7),
        reaches("PVI", "VCL", "elbo", 0),
        falls_short("PVI", "VCL", "elbo", 0),
    ]
    assert [verdict(found).holds for verdict in asked] == [None] * 6
    assert answer(asked[0](found)) == "not run"
    assert answered([Claim("so it is", asked[0])], found) == {}


def test_an_interval_that_allows_both_is_said():
    found = curves(PVI={"accuracy": [0.70, 0.80, 0.90]}, best={"accuracy": [0.72, 0.79, 0.91]}, other={"accuracy": 0.1})
    assert answer(reaches("PVI", "best", "accuracy", 0.01)(found)) == "yes, not clearly"
    assert answer(falls_short("PVI", "best", "accuracy", 0.0)(found)) == "yes, not clearly"
    assert answer(reaches("PVI", "other", "accuracy", 0.01)(found)) == "yes"


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_seed_that_diverged_is_no_success(bad):
    found = curves(PVI={"log_likelihood": [-0.5, -0.4, bad]}, best={"log_likelihood": [-0.5, -0.6, -0.5]})
    verdict = reaches("PVI", "best", "log_likelihood", 0.1)(found)
    assert verdict.holds is False
    assert "not finite" in verdict.measured


def test_answers_by_sentence():
    found = curves(PVI={"elbo": -1}, best={"elbo": -1})
    claims = [Claim("same", reaches(name, "best", "elbo", 0.1)) for name in ("PVI", "VCL", "best")]
    assert [verdict.holds for verdict in answered(claims, found)["same"]] == [True, True]


@pytest.mark.parametrize(
    "found",
    [
        curves(PVI={"accuracy": [0.7, 0.8, 0.9], "elbo_gap": [1, 2, 3]}, VCL={"accuracy": 0.5, "elbo_gap": 100}),
        curves(1, PVI={"accuracy": 0.7}),
        curves(1, PVI={"accuracy": 0.7}).query("round == 1"),
        curves(2, PVI={}),
        curves(2, PVI={"accuracy": np.nan, "elbo_gap": np.nan}),
        curves(2, PVI={"accuracy": [0.7, np.nan]}, best={"accuracy": np.nan}),
        curves(2, PVI={"accuracy": [0.7, np.inf], "elbo_gap": [np.inf, 2]}, best={"accuracy": 0.8}),
        curves(2, PVI={"accuracy": -np.inf, "elbo_gap": np.inf}),
        curves(2, PVI={"elbo_gap": 0.3}, VCL={"elbo_gap": [-1e-12, 0]}),
        curves(2, PVI={"elbo_gap": [-1e-12, 1e-10]}).query("round == 2"),
        curves(3, PVI={"elbo": [-10, -10, -10]}, VCL={"elbo": -1e9}, best={"elbo": -9.5}),
        curves(1, **{f"method {k}": {"accuracy": k / 20} for k in range(14)}),
        curves(1, best={"accuracy": 0.7}),
    ],
)  # fmt: skip
def test_pictures_of_anything(found, tmp_path):
    plot_curves(found, ("accuracy", "elbo_gap", "elbo", "error"), "Title", tmp_path / "x.png", "best")
    assert (tmp_path / "x.png").stat().st_size > 3_000


def test_tiny_gaps_do_not_turn_the_axis_over(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *args, **options: seen.extend(figure.axes))
    for gaps in ([1e-9, 2e-9], [0.5, 1e-9], [3.0, 5.0]):
        plot_curves(curves(2, PVI={"elbo_gap": gaps}).query("round == 2"), ("elbo_gap",), "Title", tmp_path / "x.png")
    assert all(np.less(*axes.get_ylim()) for axes in seen)
    assert len(seen) == 3
