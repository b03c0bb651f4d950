"""What a run says about itself."""

import pytest
from conftest import OPTIONS

from pvi.cli.options import FitOptions
from pvi.cli.words import doubts
from pvi.history import Round

OF = FitOptions(files=(), target="died")


def record(number: int, elbo: float, **more: float) -> Round:
    fields = {"elbo_standard_error": 0.0, "max_shift": 0.0, "step_fraction": 1.0} | more
    others = dict.fromkeys(set(Round._fields) - {"number", "elbo", *fields}, 0.0)
    return Round(number, elbo, **{**others, **fields, "clients": {}, "expected_log_likelihood": {}})  # type: ignore[arg-type]


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
