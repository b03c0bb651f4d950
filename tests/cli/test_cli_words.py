"""What a run says about itself."""

from dataclasses import replace

import pytest
import torch
from conftest import OPTIONS

import pvi
from pvi.cli.options import FitOptions
from pvi.cli.pipeline import load_tables
from pvi.cli.words import doubts, explanations, noise_note, target_deviation
from pvi.history import Round

OF = FitOptions(files=(), target="died")


def record(number: int, elbo: float, **more: float) -> Round:
    fields = {"elbo_standard_error": 0.0, "max_shift": 0.0, "step_fraction": 1.0} | more
    others = dict.fromkeys(set(Round._fields) - {"number", "elbo", *fields}, 0.0)
    return Round(number, elbo, **{**others, **fields, "clients": {}, "earlier": (), "expected_log_likelihood": {}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("last", "options", "said"),
    [
        ({"max_shift": 0.005}, OF, []),
        (
            {"max_shift": 0.123},
            OF,
            ["by 0.12 posterior standard deviations; use more rounds, or --schedule sequential"],
        ),
        ({"max_shift": 2.0, "elbo_standard_error": 1.0}, OF, ["deviations (in part Monte Carlo noise); use more"]),
        (
            {"max_shift": 0.123},
            FitOptions(files=(), target="died", schedule="sequential", damping=1.0),
            ["standard deviations; use more rounds."],
        ),
    ],
)
def test_a_run_that_still_moves(last, options, said):
    found = list(doubts(options, [record(1, -5.0), record(2, -5.0, **last)], False))
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


def test_an_elbo_that_fell():
    moved, fell = doubts(OF, [record(1, -5.0), record(2, -9.0, max_shift=1.0)], False)
    assert moved.endswith("use a smaller --damping.")
    assert "-4 nats" in fell


def test_mean_field_is_named_as_such(hospitals, tmp_path, call):
    said = "Mean-field intervals ignore correlations"
    outcome = call("fit", *hospitals, *OPTIONS, "--out", tmp_path / "a")
    assert said in outcome.output
    assert "Not converged yet: in the last round a coefficient still moved by" in outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80
    assert said not in call("fit", *hospitals, *OPTIONS, "--guide", "full", "--out", tmp_path / "b").output


def test_a_point_estimate_has_no_intervals():
    said = " ".join(explanations(replace(OF, algorithm="fedavg")))
    assert said.startswith(
        "fedavg makes a point estimate: its sd is set, not learned; intervals and P(dir.) say nothing."
    )
    assert "certainty" not in said
    assert "Mean-field" not in said
    assert "certainty" in " ".join(explanations(OF))


def test_a_point_estimate_says_so_in_words_and_predictions(hospitals, tmp_path, call):
    run = tmp_path / "run"
    outcome = call("fit", *hospitals, "--target", "died", "--algorithm", "ditto", "--rounds", 2, "--out", run)
    said = " ".join(outcome.output.split())
    assert "ditto makes a point estimate: its sd is set, not learned; intervals and P(dir.) say nothing." in said
    assert "These are the coefficients of the common estimate. The clients' own are in personal_summary.csv" in said
    assert pvi.load(run).settings["point"] is True
    note = "Note: ditto makes a point estimate: its sd is set, not learned; it and the interval say nothing."
    assert note in " ".join(call("predict", run, hospitals[0]).output.split())


@pytest.mark.parametrize(
    ("algorithm", "elbos", "said"),
    [
        ("fedavg", (-9, -8, -7, -90, -80, -70), "The objective has fallen far, from -7.000 in round 3 to -70.000"),
        ("fola", (-9, -8, -7, -90, -80, -70), "use smaller steps (--set learning_rate=...)"),
        ("pfedbayes", (-9, -8, -7, -90, -80, -70), "rounds need not raise it"),
    ],
)
def test_an_objective_that_fell_for_good(algorithm, elbos, said):
    rounds = [record(number, float(elbo)) for number, elbo in enumerate(elbos, 1)]
    (doubt,) = doubts(replace(OF, algorithm=algorithm), rounds, False)
    assert said in doubt


def test_a_noise_scale_in_other_units(hospitals, tmp_path, call):
    files = tuple(map(str, hospitals))
    options = FitOptions(files=files, target="dose", model="linear_regression", drop=("died",))
    tables = load_tables(options)
    rows = torch.cat([y for _, y in tables.values()])
    assert target_deviation(tables) == pytest.approx(float(rows.std(correction=0)), rel=1e-12)
    said = noise_note(options, tables)
    assert said.startswith("The target's standard deviation is 1")
    assert "but noise_scale is 1: intervals will be wrong; give --argument noise_scale=... and --argument prior" in said
    for scale, quiet in (("15", True), ("40", True), ("400", False)):
        assert (noise_note(replace(options, argument=(f"noise_scale={scale}",)), tables) == "") == quiet
    assert noise_note(replace(options, model="poisson_regression"), tables) == ""
    outcome = call("fit", *hospitals, "--target", "dose", "--drop", "died", "--model", "linear_regression",
                   "--rounds", 1, "--out", tmp_path / "run")  # fmt: skip
    assert "but noise_scale is 1" in " ".join(outcome.output.split())
    assert max(map(len, outcome.output.splitlines())) <= 80
