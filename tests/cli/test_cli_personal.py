"""Runs that leave every client a posterior of its own: what is said, written, and predicted with."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray
from small_personal import hospitals as simulated
from test_cli_predict import table
from test_cli_words import record
from typer.testing import CliRunner

import pvi
from pvi.cli import app, noisy
from pvi.cli.options import FitOptions
from pvi.cli.output import HYPERPARAMETERS, WRITTEN
from pvi.cli.pipeline import load_tables
from pvi.cli.words import doubts, explanations
from pvi.diagnostics import personal_metrics
from pvi.report import coefficient_table

CLIENTS = ["north", "south", "island"]
STEPS = ("zeta=1", "learning_rate=0.05", "global_learning_rate=0.05")
METHOD = ("--algorithm", "pfedbayes", *(part for step in STEPS for part in ("--set", step)))


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("personal")
    for name, (x, y) in simulated(seed=0).items():
        frame = pd.DataFrame(x.numpy(), columns=["age", "dose", "score"]).assign(died=y.int().numpy())
        frame.to_csv(folder / f"{name}.csv", index=False)
    return [folder / f"{name}.csv" for name in CLIENTS]


@pytest.fixture(scope="module")
def options(files) -> FitOptions:
    return FitOptions(files=tuple(map(str, files)), target="died", algorithm="pfedbayes", set=STEPS)


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    """What was said, and the folder of the run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    arguments = ["fit", *map(str, files), "--target", "died", *METHOD, "--rounds", "8", "--out", str(folder)]
    said = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "COLUMNS": "80"})
    assert said.exit_code == 0, said.output
    return said.output, folder


def test_the_run_is_that_of_python_and_comes_back(finished, options):
    found = pvi.load(finished[1])
    tables = load_tables(options)
    algorithm = pvi.PFedBayes(zeta=1, learning_rate=0.05, global_learning_rate=0.05)
    expected = pvi.fit("logistic_regression", tables, algorithm=algorithm, rounds=8)
    assert torch.equal(found.posterior.natural, expected.posterior.natural)
    assert list(found.personal) == CLIENTS
    for name, posterior in expected.personal.items():
        assert torch.equal(found.personal[name].natural, posterior.natural)
        x, _ = tables.holdout[name]
        assert torch.equal(found.predict_mean(x, client=name)["y"], expected.predict_mean(x, client=name)["y"])
    assert found.settings == expected.settings
    saved = json.loads((finished[1] / "config.json").read_text())["options"]
    assert saved["set"] == list(STEPS)


def test_what_is_said(finished):
    said = " ".join(finished[0].split())
    assert max(map(len, finished[0].splitlines())) <= 80
    assert "ELBO" not in said.replace("The rounds' ELBO (or objective)", "")
    assert "--guide full" not in said
    order = [
        "round 1/8 objective -", "held-out -", "personal -", "Coefficients of the global posterior",
        "not what all rows together say", "personal / global model", "log density (nats)", "AUROC", "all clients",
        "Objective -", "It is Σ_m (E_q_m[log p(y_m | θ)] - KL(q_m, q)) with q_m client m's own posterior",
        "personal_summary.csv", "personal.csv",
    ]  # fmt: skip
    place = 0
    for words in order:
        place = said.index(words, place)


def test_what_is_written(finished, options):
    folder, result = finished[1], pvi.load(finished[1])
    assert {path.name for path in folder.iterdir()} == set(WRITTEN) - {HYPERPARAMETERS}
    tables = load_tables(options)
    written = pd.read_csv(folder / "personal.csv", index_col="client")
    expected = personal_metrics(result, tables.holdout)
    assert list(written.index) == [*CLIENTS, "all clients"]
    pd.testing.assert_frame_equal(written, expected)
    assert (written.loc["all clients", "log_density_pm"] > written.loc["all clients", "log_density_gm"]).all()
    history = pd.read_csv(folder / "history.csv")
    last = history.iloc[-1]
    assert last["heldout_log_density"] == pytest.approx(expected.loc["all clients", "log_density_gm"], rel=1e-12)
    assert last["heldout_log_density_personal"] == pytest.approx(expected.loc["all clients", "log_density_pm"])
    coefficients = pd.read_csv(folder / "personal_summary.csv", index_col="client")
    own = coefficient_table(result.of_client("south"))
    assert np.allclose(coefficients.loc["south", "mean"], own["mean"])
    assert list(coefficients.loc["south", "coefficient"]) == ["age", "dose", "score", "bias"]
    with xarray.open_datatree(folder / "posterior.nc", engine="h5netcdf") as tree:
        assert list(tree["posterior/personal_weights"].client.values) == CLIENTS


def test_predictions_by_a_client_and_by_all(finished, files, options, call):
    _, folder = finished
    result, tables = pvi.load(folder), load_tables(options)
    frame = pd.read_csv(files[0], dtype=str)
    x, y = tables.schema.encode(frame), tables.schema.encode_target(frame)
    means = {}
    for client, more in (("north", ("--client", "north")), (None, ())):
        outcome = call("predict", folder, files[0], *more)
        assert outcome.exit_code == 0, outcome.output
        means[client] = table(outcome)["probability"].to_numpy()
        assert np.allclose(means[client], result.predict_mean(x, client=client, method="draws")["y"], rtol=1e-5)
        density = float(result.log_predictive_density(x, y, client=client)["y"].mean())
        (line,) = [line for line in outcome.output.splitlines() if line.strip().startswith("north")]
        assert f" {density:.3f} " in line
        note = "predicted by the global posterior; --client NAME takes a client's own (north, south, island)"
        assert (note in " ".join(outcome.output.split())) == (client is None)
    assert np.abs(means["north"] - means[None]).max() > 0.1
    outcome = call("predict", folder, files[0], "--client", "west")
    assert outcome.exit_code == 2
    assert "client 'west' has no personal posterior; there are ['north', 'south', 'island']" in outcome.output


def test_a_config_repeats_the_run(finished, tmp_path, call):
    again = ("fit", "--config", finished[1], "--out", tmp_path / "again")
    assert call(*again).exit_code == 0
    first, second = pvi.load(finished[1]), pvi.load(tmp_path / "again")
    assert all(torch.equal(first.personal[name].natural, second.personal[name].natural) for name in CLIENTS)
    outcome = call(*again, "--set", "zeta=4", "--rounds", 1, "--holdout", 0)
    assert outcome.exit_code == 0
    assert "- 4 KL(q_m, q))" in " ".join(outcome.output.split())
    assert "a client's rows count 0.25 times" in " ".join(outcome.output.split())
    # Tables of the run before are not left beside the new one.
    assert {path.name for path in (tmp_path / "again").iterdir()} == set(WRITTEN) - {
        HYPERPARAMETERS, "heldout.csv", "personal.csv",
    }  # fmt: skip
    assert not {"heldout_log_density", "heldout_log_density_personal"} & set(
        pd.read_csv(tmp_path / "again/history.csv")
    )


def test_it_needs_a_mean_field_guide(files, tmp_path, call):
    outcome = call("fit", *files, "--target", "died", *METHOD, "--guide", "full", "--out", tmp_path / "run")
    assert outcome.exit_code == 2
    assert "mean-field" in outcome.output


@pytest.mark.parametrize(
    ("zeta", "said"),
    [("zeta=1", None), ("zeta=10", "rows count 0.1 times"), ("zeta=0", "has no prior")],
)
def test_what_zeta_means(zeta, said):
    found = explanations(FitOptions(files=(), target="died", algorithm="pfedbayes", set=(zeta,)))
    assert any("zeta" in sentence for sentence in found) == (said is not None)
    assert said is None or said in found[-1]


def rounds(elbos, **more):
    return [record(number, float(elbo), **more) for number, elbo in enumerate(elbos, 1)]


def test_rounds_of_noisy_steps():
    given = FitOptions(files=(), target="died", algorithm="pfedbayes")
    noise = np.random.default_rng(0).normal(0, 1, 40)
    # Still noise settles, however much coefficients shift in a round; nothing is said of damping.
    assert list(doubts(given, rounds(noise, max_shift=1.0), False)) == []
    (rising,) = doubts(given, rounds(np.arange(40) + noise), False)
    assert "Not converged yet: the objective's mean over the last 10 rounds is 10 nats above" in rising
    assert "--set learning_rate=..., --set global_learning_rate=..." in rising
    (falling,) = doubts(given, rounds(-np.arange(40) + noise), False)
    assert "nats below that of the 10 before: rounds need not raise it, but smaller steps (--set" in falling
    (few,) = doubts(given, rounds(np.arange(5)), False)
    assert few.startswith("5 rounds of noisy steps are too few")
    for lost in (-np.inf, np.nan):
        (said,) = doubts(given, rounds([0.0] * 10 + [lost] + [0.0] * 5), False)
        assert said.startswith("The objective was not finite in 1 of the last 16 rounds; use smaller steps (--set")


def test_the_noise_of_a_trend_is_its_standard_error():
    rng = np.random.default_rng(1)
    found = np.array([noisy.trend(list(2.0 * np.arange(20) + rng.normal(0, 3, 20)), 10) for _ in range(4000)])
    error = 3 * (2 / 10) ** 0.5
    assert abs(found[:, 0].mean() - 20) < 5 * error / 4000**0.5
    assert found[:, 0].std() == pytest.approx(error, rel=0.06)
    # Differences of neighbours are tied to each other, so that single estimates spread, but not their mean square.
    assert np.sqrt((found[:, 1] ** 2).mean()) == pytest.approx(3 * error, rel=0.06)


@pytest.mark.slow
def test_four_hospitals(data, tmp_path, call):
    paths = [data / f"heart-disease/processed.{name}.data" for name in ("cleveland", "hungarian", "switzerland", "va")]
    outcome = call(
        "fit", *paths, "--no-header", "--na", "?", "--target", 13, "--positive", ">0", "--categorical", "2,6,10,12",
        "--missing", "indicator", "--algorithm", "pfedbayes", "--set", "zeta=1", "--set", "learning_rate=0.01",
        "--set", "global_learning_rate=0.01", "--rounds", 40, "--executor", "vectorised", "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80
    found = pd.read_csv(tmp_path / "run/personal.csv", index_col="client")
    last = found.loc["all clients"]
    assert last["n"] == 182
    # 93 % of the Swiss patients are ill, 36 % of the Hungarian ones.
    assert found.loc["switzerland", "log_density_pm"] > found.loc["switzerland", "log_density_gm"]
    assert last["log_density_pm"] > max(-0.5, last["log_density_gm"])
    outcome = call("predict", tmp_path / "run", paths[3], "--client", "va")
    assert outcome.exit_code == 0


def test_a_client_whose_visits_are_rejected_costs_nobody_the_run(tmp_path, call):
    """Its personal model is the global one; the others' are their own; the rejection is said."""
    generator = np.random.default_rng(0)
    names = []
    for name, scale in (("la", 1.0), ("lb", 1.0), ("lc", 1e6)):
        x = generator.normal(size=(30, 2))
        y = scale * (x @ [1.0, -1.0] + generator.normal(size=30))
        pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y}).to_csv(tmp_path / f"{name}.csv", index=False)
        names.append(str(tmp_path / f"{name}.csv"))
    said = call(
        "fit", *names, "--target", "y", "--model", "linear_regression", "--algorithm", "pfedbayes", "--set",
        "optimiser=sgd", "--set", "learning_rate=0.01", "--set", "zeta=1", "--rounds", "7", "--out",
        str(tmp_path / "run"),
    )  # fmt: skip
    assert said.exit_code == 0
    assert "lc" in said.output
    table = pd.read_csv(tmp_path / "run" / "personal.csv", index_col=0)
    assert list(table.index) == ["la", "lb", "lc", "all clients"]
    assert table.loc["lc", "log_density_pm"] == pytest.approx(table.loc["lc", "log_density_gm"])
    assert table.loc["la", "log_density_pm"] != pytest.approx(table.loc["la", "log_density_gm"])
