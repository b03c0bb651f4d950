import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import frame

import pvi
from pvi.data import Schema

COLUMNS = ["row", "probability", "sd", "lower", "upper", "target"]


def table(outcome):
    lines = [line for line in outcome.stdout.splitlines() if line[:1].isdigit() or line.startswith("row,")]
    return pd.read_csv(io.StringIO("\n".join(lines)))


def test_predictions_against_direct_computation(run_folder, hospitals, call):
    outcome = call("predict", run_folder, hospitals[0], "--draws", 4000)
    assert outcome.exit_code == 0
    found = table(outcome)
    assert list(found.columns) == COLUMNS
    result = pvi.load(run_folder)
    schema = Schema.from_dict(json.loads((run_folder / "config.json").read_text())["schema"])
    x = schema.encode(pd.read_csv(hospitals[0], dtype=str))
    draws = result.posterior.sample(20_000, torch.Generator().manual_seed(1))
    p = torch.sigmoid(draws["weights"] @ x.T + draws["bias"][:, None])
    error = 5 * p.std(0) / np.sqrt(4000) + 1e-5
    assert (np.abs(found["probability"] - p.mean(0).numpy()) < error.numpy()).all()
    assert np.allclose(found["sd"], p.std(0), rtol=0.1)
    assert np.allclose(found["lower"], p.quantile(0.025, 0), atol=0.03)
    assert np.allclose(found["upper"], p.quantile(0.975, 0), atol=0.03)
    assert (found["target"] == pd.read_csv(hospitals[0])["died"]).all()
    assert "Against the target" in outcome.output
    assert "(rows that took part in the fit look better than new ones)" in outcome.output


def test_into_a_file_and_without_a_target(run_folder, tmp_path, call):
    frame(5, 9).drop(columns="died").to_csv(tmp_path / "new.csv", index=False)
    outcome = call("predict", run_folder, tmp_path / "new.csv", "--out", tmp_path / "more/predictions.csv")
    assert outcome.exit_code == 0, outcome.output
    assert "5 rows written" in outcome.output
    assert "Against the target" not in outcome.output
    written = pd.read_csv(tmp_path / "more/predictions.csv")
    assert list(written.columns) == COLUMNS[:-1]
    assert ((written["lower"] < written["probability"]) & (written["probability"] < written["upper"])).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.drop(columns="age"), "missing columns 'age'"),
        (lambda rows: rows.assign(ward="z"), "'z' was not in training"),
        (lambda rows: rows.assign(age="old"), "'old' is not a finite number"),
        (lambda rows: rows.assign(dose=None), "none was in training"),
        (lambda rows: rows.assign(died=7), "neither 0 nor 1"),
        (lambda rows: rows.head(0), "no rows"),
    ],
)
def test_tables_that_do_not_fit(run_folder, tmp_path, call, change, said):
    change(frame(5, 9)).to_csv(tmp_path / "new.csv", index=False)
    outcome = call("predict", run_folder, tmp_path / "new.csv")
    assert outcome.exit_code == 2
    assert said in outcome.output
    assert "Traceback" not in outcome.output


def test_unseen_levels_can_be_allowed(run_folder, tmp_path, call):
    frame(5, 9).assign(ward="z").to_csv(tmp_path / "new.csv", index=False)
    assert "--allow-unseen" in call("predict", run_folder, tmp_path / "new.csv").output
    outcome = call("predict", run_folder, tmp_path / "new.csv", "--allow-unseen")
    assert outcome.exit_code == 0
    assert len(table(outcome)) == 5
    assert "'z' was not in training" in " ".join(outcome.output.split())


def spoil(folder, name, content):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b"\xff\xfe\x00nonsense", b'{"format": 99}'])
@pytest.mark.parametrize("name", ["config.json", "result.json", "posterior.safetensors", "factors.safetensors"])
def test_a_damaged_run(run_folder, hospitals, tmp_path, call, name, content):
    shutil.copytree(run_folder, tmp_path / "run")
    spoil(tmp_path / "run", name, content)
    outcome = call("predict", tmp_path / "run", hospitals[0])
    assert outcome.exit_code == 2, outcome.output
    assert outcome.output.startswith("Error: ")
    assert len(outcome.output.splitlines()) == 1
    assert str(tmp_path / "run") in outcome.output


def test_what_is_not_there(run_folder, hospitals, tmp_path, call):
    assert "no such folder" in call("predict", tmp_path / "none", hospitals[0]).output
    assert "config.json" in call("predict", tmp_path, hospitals[0]).output
    assert "file not found" in call("predict", run_folder, tmp_path / "none.csv").output
