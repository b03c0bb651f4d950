import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray
from conftest import OPTIONS

import pvi
from pvi import run
from pvi.cli.output import COEFFICIENTS, HYPERPARAMETERS, PERSONAL, WRITTEN
from pvi.programs.names import resolve_model


def test_all_files_are_written(run_folder):
    assert {path.name for path in run_folder.iterdir()} == set(WRITTEN) - {HYPERPARAMETERS, PERSONAL, COEFFICIENTS}
    result = pvi.load(run_folder)
    assert {"age", "dose"} < set(result.columns)
    assert len(result.columns) == 4  # ward has a reference level and two others
    summary = pd.read_csv(run_folder / "summary.csv")
    assert list(summary["coefficient"]) == [*result.columns, "bias"]
    assert np.allclose(summary["mean"][:-1], result.posterior.mean["weights"])
    history = pd.read_csv(run_folder / "history.csv")
    assert list(history["round"]) == [1, 2, 3]
    assert np.isclose(history["elbo"].iloc[-1], result.elbo)
    assert history["heldout_log_density"].notna().all()
    heldout = pd.read_csv(run_folder / "heldout.csv", index_col="client")
    assert list(heldout["rows"]) == [12, 16, 28]
    assert np.isclose(heldout["log_density"].iloc[-1], history["heldout_log_density"].iloc[-1], rtol=1e-12)
    with xarray.open_datatree(run_folder / "posterior.nc", engine="h5netcdf") as tree:
        assert set(tree.children) == {"posterior", "prior", "sample_stats"}


def test_what_is_said(hospitals, tmp_path, call):
    outcome = call("fit", *hospitals, *OPTIONS, "--out", tmp_path / "run")
    assert outcome.exit_code == 0
    order = ["Clients", "north", "Reference levels", "round 1/3", "held-out", "round 3/3", "coefficient", "P(dir.)",
             "probability of direction", "Held-out rows", "all clients", "Written to"]  # fmt: skip
    place = 0
    for word in order:
        place = outcome.output.index(word, place)
    assert max(map(len, outcome.output.splitlines())) <= 80
    assert "\x1b" not in outcome.output


def test_a_run_repeats_to_the_last_bit(hospitals, run_folder, tmp_path, call):
    outcome = call("fit", "--config", run_folder / "config.json", "--out", tmp_path / "again")
    assert outcome.exit_code == 0, outcome.output
    first, second = pvi.load(run_folder), pvi.load(tmp_path / "again")
    assert (first.posterior.natural == second.posterior.natural).all()
    assert [record.elbo for record in first.history] == [record.elbo for record in second.history]
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (run_folder, tmp_path / "again"))
    assert old == new
    assert set(old["versions"]) >= {"pvi", "torch", "pyro", "python"}
    assert (tmp_path / "again/summary.csv").read_text() == (run_folder / "summary.csv").read_text()


def test_options_beside_a_config_win(run_folder, tmp_path, call):
    outcome = call("fit", "--config", run_folder, "--rounds", 1, "--guide", "full", "--out", tmp_path / "again")
    assert outcome.exit_code == 0, outcome.output
    options = json.loads((tmp_path / "again/config.json").read_text())["options"]
    assert (options["rounds"], options["guide"], options["damping"]) == (1, "full", 0.5)


def test_changed_data_are_noticed(hospitals, tmp_path, call):
    copies = [tmp_path / path.name for path in hospitals]
    for copy, path in zip(copies, hospitals, strict=True):
        copy.write_text(path.read_text())
    call("fit", *copies, *OPTIONS, "--rounds", 1, "--out", tmp_path / "run")
    copies[0].write_text(copies[0].read_text().rsplit("\n", 2)[0] + "\n")
    outcome = call("fit", "--config", tmp_path / "run", "--out", tmp_path / "again")
    assert "north.csvhaschanged" in "".join(outcome.output.split())  # however long the path is


def test_a_run_is_replaced_but_nothing_else(hospitals, tmp_path, call):
    for _ in range(2):
        outcome = call("fit", *hospitals, *OPTIONS, "--rounds", 1, "--out", tmp_path / "run")
        assert outcome.exit_code == 0
    assert "was replaced" in " ".join(outcome.output.split())
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").write_text("years of work")
    arguments = ("fit", *hospitals, *OPTIONS, "--rounds", 1, "--out", tmp_path / "thesis")
    outcome = call(*arguments)
    assert outcome.exit_code == 2
    assert "--overwrite" in outcome.output
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.txt"]
    assert call(*arguments, "--overwrite").exit_code == 0
    assert (tmp_path / "thesis/thesis.txt").read_text() == "years of work"


def interrupted(monkeypatch, after):
    play, count = run.play_round, []

    def play_round(plan, state):
        if len(count) == after:
            raise KeyboardInterrupt
        count.append(1)
        return play(plan, state)

    monkeypatch.setattr(run, "play_round", play_round)


def test_an_interrupt_keeps_the_rounds_played(hospitals, tmp_path, call, monkeypatch):
    interrupted(monkeypatch, after=2)
    outcome = call("fit", *hospitals, *OPTIONS, "--out", tmp_path / "run")
    assert outcome.exit_code == 130
    assert "2 of 3 rounds were played" in " ".join(outcome.output.split())
    assert len(pvi.load(tmp_path / "run").history) == 2
    assert json.loads((tmp_path / "run/config.json").read_text())["interrupted_after_rounds"] == 2


def test_an_interrupt_before_the_first_round(hospitals, tmp_path, call, monkeypatch):
    interrupted(monkeypatch, after=0)
    outcome = call("fit", *hospitals, *OPTIONS, "--out", tmp_path / "run")
    assert outcome.exit_code == 130
    assert "nothing was written" in " ".join(outcome.output.split())
    assert not list((tmp_path / "run").iterdir())


def test_no_holdout_but_rows_in_the_netcdf_file(hospitals, tmp_path, call):
    outcome = call("fit", *hospitals, *OPTIONS, "--rounds", 1, "--holdout", 0, "--rows", "--out", tmp_path / "run")
    assert outcome.exit_code == 0, outcome.output
    assert "Held-out" not in outcome.output
    assert not (tmp_path / "run/heldout.csv").exists()
    with xarray.open_datatree(tmp_path / "run/posterior.nc", engine="h5netcdf") as tree:
        assert set(tree["observed_data/y"].client.values) == {"north", "south"}
    assert "Holds the clients' rows" in " ".join(outcome.output.split())


def test_one_file_by_column_numeric_target_and_arguments(hospitals, tmp_path, call):
    whole = pd.concat([pd.read_csv(path).assign(city=path.stem) for path in hospitals])
    whole.to_csv(tmp_path / "all.csv", index=False)
    outcome = call(
        "fit", tmp_path / "all.csv", "--by", "city", "--target", "dose", "--drop", "died,ward", "--model",
        "linear_regression", "--argument", "noise_scale=20", "--argument", "prior_scale=5", "--rounds", 2,
        "--schedule", "sequential", "--damping", 1, "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    assert "RMSE" in outcome.output
    result = pvi.load(tmp_path / "run")
    assert np.isclose(result.prior.sd["bias"], 5)
    outcome = call("predict", tmp_path / "run", tmp_path / "all.csv")
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[0] == "row,mean,sd,lower,upper,target"


@pytest.mark.parametrize("solver", [pytest.param("svi", marks=pytest.mark.slow), "newton"])
def test_solvers_and_a_model_in_a_file(hospitals, tmp_path, call, solver):
    source = Path(resolve_model("logistic_regression").__code__.co_filename)
    (tmp_path / "mine.py").write_text(source.read_text())
    outcome = call(
        "fit", *hospitals, *OPTIONS, "--rounds", 1, "--model", f"{tmp_path}/mine.py:model", "--solver", solver,
        "--guide", "full", "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    assert call("predict", tmp_path / "run", hospitals[0]).exit_code == 0
    saved = json.loads((tmp_path / "run/config.json").read_text())
    assert saved["model_sha256"] == hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    again = ("fit", "--config", tmp_path / "run", "--out", tmp_path / "again")
    for edited in (False, True):
        if edited:
            (tmp_path / "mine.py").write_text(source.read_text() + "# edited\n")
        for arguments in (again, ("predict", tmp_path / "run", hospitals[0])):
            assert ("has changed since the run" in " ".join(call(*arguments).output.split())) == edited
    (tmp_path / "mine.py").unlink()
    outcome = call("predict", tmp_path / "run", hospitals[0])
    assert outcome.exit_code == 2
    assert "--model" in outcome.output
    assert call("predict", tmp_path / "run", hospitals[0], "--model", "logistic_regression").exit_code == 0
