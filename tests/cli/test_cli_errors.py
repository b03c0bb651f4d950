import os
import subprocess
import sys

import pandas as pd
import pytest
from conftest import OPTIONS, frame

from pvi.cli.options import FitOptions, split


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--target", "dead"), "did you mean"),
        (("--target", "ward"), "--positive"),
        (("--damping", "2"), "damping must lie in (0, 1]"),
        (("--rounds", "0"), "rounds must be"),
        (("--model", "logistic"), "no bundled model 'logistic'"),
        (("--model", "missing.py:model"), "there is no file missing.py"),
        (("--model", "no.such.module:model"), "cannot import"),
        (("--guide", "diagonal"), "unknown guide"),
        (("--schedule", "random"), "unknown schedule"),
        (("--algorithm", "magic"), "unknown algorithm"),
        (("--solver", "adam"), "unknown solver"),
        (("--alpha", "0.5"), "--alpha is for --algorithm power-ep or stochastic-ep, not for 'pvi'"),
        (("--algorithm", "power-ep", "--alpha", "0"), "alpha must lie in (0, 1]"),
        (("--algorithm", "vcl"), "damping (1.0), got 0.5; leave damping out"),
        (("--algorithm", "bcm-same", "--damping", "1"), "rounds=3: algorithm 'bcm-same' with schedule 'synchronous'"),
        (("--algorithm", "bcm-same", "--damping", "1", "--schedule", "sequential"), "defined by its schedule"),
        (("--schedule", "single-pass"), "makes at most 1"),
        (("--schedule", "random-subset"), "needs --subset-size"),
        (("--schedule", "random-subset", "--subset-size", "3"), "a random subset of 3 clients: there are only 2"),
        (("--schedule", "random-subset", "--subset-size", "0"), "size must be a whole number of clients, at least 1"),
        (("--subset-size", "1"), "--subset-size is for --schedule random-subset"),
        (("--latency", "1,2"), "name the --schedule"),
        (("--schedule", "asynchronous", "--latency", "1,2,3"), "3 numbers for 2 clients"),
        (("--schedule", "asynchronous", "--latency", "1,fast"), "write 1,1,10 or north=1,south=10"),
        (("--schedule", "asynchronous", "--latency", "north=1,2"), "name every client once"),
        (("--schedule", "asynchronous", "--latency", "north=1,north=2"), "name every client once"),
        (("--schedule", "asynchronous", "--latency", "north=1"), "none for clients ['south']"),
        (("--schedule", "asynchronous", "--latency", "1,0"), "must be positive and finite"),
        (("--damping", "always"), "auto, or decay:INITIAL:RATE:POWER"),
        (("--damping", "auto:0.5"), "auto, or decay:INITIAL:RATE:POWER"),
        (("--damping", "decay"), "auto, or decay:INITIAL:RATE:POWER"),
        (("--damping", "decay:2"), "initial must lie in (0, 1]"),
        (("--damping", "decay:0.5:-1"), "rate and power must be positive"),
        (("--damping", "decay:0.5:fast"), "could not convert"),
        (("--acceleration", "nesterov"), "unknown acceleration"),
        (("--acceleration", "anderson", "--memory", "0"), "memory must be a whole number, at least 1"),
        (("--acceleration", "anderson", "--schedule", "sequential"), "needs a synchronous schedule"),
        (("--memory", "3"), "--memory is for --acceleration anderson"),
        (("--learn", "all,scale"), "all and none stand alone"),
        (("--learn", "scale"), "the model has no hyperparameters (pyro.param) to learn"),
        (("--device", "gpu"), "cannot be used here"),
        (("--device", "meta"), "cannot be used here"),
        (("--missing", "guess"), "missing is one of"),
        (("--holdout", "1"), "holdout must be"),
        (("--seed", "-1"), "seed must not be negative"),
        (("--argument", "prior_scale"), "name=value"),
        (("--argument", "sigma=1"), "takes x, y, prior_scale"),
        (("--argument", "prior_scale=wide"), "must be a number"),
        (("--argument", "prior_scale=-1"), "scale = -1"),
        (("--config", "none.json"), "none.json"),
        (("--categorical", "wards"), "'wards'"),
        (("--no-header", "--names", "a,b"), "2 names"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(hospitals, tmp_path, call, options, said):
    outcome = call("fit", *hospitals, *OPTIONS, "--out", tmp_path / "run", *options)
    assert outcome.exit_code == 2, outcome.output
    error = [line for line in outcome.output.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert said in error[0]
    assert "Traceback" not in outcome.output


@pytest.mark.parametrize(
    "wrong",
    ["damping=0", "rounds=0", "schedule=random", "guide=none", "solver=adam", "algorithm=magic", "model=logistic",
     "holdout=-0.1", "seed=-1", "missing=guess", "task=guess", "alpha=1", "subset-size=1", "latency=1", "memory=1",
     "acceleration=none", "damping=auto:1", "learn=all,none"],
)  # fmt: skip
def test_options_are_checked_before_tables_are_read(tmp_path, call, wrong):
    option, value = wrong.split("=")
    outcome = call("fit", tmp_path / "none.csv", *OPTIONS, "--out", tmp_path / "run", f"--{option}", value)
    assert outcome.exit_code == 2, outcome.output
    assert "file not found" not in outcome.output
    assert option in outcome.output


def test_a_column_named_like_an_argument_of_the_model(tmp_path, call):
    frame(50, 3).rename(columns={"age": "exposure"}).to_csv(tmp_path / "a.csv", index=False)
    arguments = ("fit", tmp_path / "a.csv", "--target", "dose", "--model", "poisson_regression", "--rounds", 1)
    outcome = call(*arguments, "--out", tmp_path / "run")
    assert outcome.exit_code == 2, outcome.output
    assert "column 'exposure' has the name of an argument of the model" in outcome.output
    assert call(*arguments, "--drop", "exposure", "--out", tmp_path / "run").exit_code == 0


def test_what_must_be_said(hospitals, tmp_path, call):
    assert "no files" in call("fit", "--target", "died", "--out", tmp_path / "run").output
    assert "--target" in call("fit", *hospitals, "--out", tmp_path / "run").output
    missing = call("fit", tmp_path / "none.csv", *OPTIONS, "--out", tmp_path / "run")
    assert missing.exit_code == 2
    assert "file not found" in missing.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("where", ["file", "below"])
def test_an_output_folder_that_cannot_be(hospitals, tmp_path, call, where):
    (tmp_path / "taken").write_text("a file")
    out = tmp_path / "taken" if where == "file" else tmp_path / "taken" / "run"
    outcome = call("fit", *hospitals, *OPTIONS, "--out", out)
    assert outcome.exit_code == 2
    assert "Error: " in outcome.output
    assert "round 1" not in outcome.output


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_folder_without_permission(hospitals, tmp_path, call):
    (tmp_path / "locked").mkdir(mode=0o500)
    outcome = call("fit", *hospitals, *OPTIONS, "--out", tmp_path / "locked" / "run")
    assert outcome.exit_code == 2
    assert "Permission denied" in outcome.output


def test_debug_shows_where(hospitals, tmp_path, call):
    outcome = call("fit", *hospitals, *OPTIONS, "--target", "dead", "--out", tmp_path / "run", "--debug")
    assert outcome.exit_code == 1
    assert isinstance(outcome.exception, ValueError)


def test_one_client_and_a_constant_column(tmp_path, call):
    frame(50, 3).assign(country="here").to_csv(tmp_path / "only.csv", index=False)
    outcome = call("fit", tmp_path / "only.csv", *OPTIONS, "--damping", 1, "--out", tmp_path / "run")
    assert outcome.exit_code == 0, outcome.output
    assert "'country' was left out" in outcome.output
    assert call("predict", tmp_path / "run", tmp_path / "only.csv").exit_code == 0


def test_a_client_with_one_row(hospitals, tmp_path, call):
    frame(50, 3).head(1).to_csv(tmp_path / "tiny.csv", index=False)
    outcome = call("fit", *hospitals, tmp_path / "tiny.csv", *OPTIONS, "--out", tmp_path / "run")
    assert outcome.exit_code == 0, outcome.output
    heldout = pd.read_csv(tmp_path / "run/heldout.csv", index_col="client")
    assert list(heldout.index) == ["north", "south", "all clients"]


def test_separable_outcomes(tmp_path, call):
    rows = frame(40, 3).assign(died=lambda table: (table["age"] > 60).astype(int))
    rows.to_csv(tmp_path / "a.csv", index=False)
    frame(40, 4).to_csv(tmp_path / "b.csv", index=False)
    outcome = call("fit", tmp_path / "a.csv", tmp_path / "b.csv", *OPTIONS, "--out", tmp_path / "run")
    assert outcome.exit_code == 0, outcome.output


@pytest.mark.parametrize("command", ["fit", "predict", "models", "algorithms", "demo"])
def test_help(call, command):
    outcome = call(command, "--help")
    assert outcome.exit_code == 0
    assert "Usage" in outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80


def test_help_names_every_option(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    said = call("fit", "--help").output
    for field in FitOptions.__dataclass_fields__:
        assert field == "files" or f"--{field.replace('_', '-')}" in said


def test_models(call):
    outcome = call("models")
    assert outcome.exit_code == 0
    for word in ("logistic_regression", "poisson_regression", "linear_regression", "prior_scale=1.0", "exposure"):
        assert word in outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80


def test_without_arguments_there_is_help():
    outcome = subprocess.run([sys.executable, "-m", "pvi.cli"], capture_output=True, text=True, check=False)
    assert "demo" in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_lists():
    assert split(["a,b", "c"]) == ("a", "b", "c")
    assert split(["?", ",NA"]) == ("?", "", "NA")
    assert split(None) == ()
