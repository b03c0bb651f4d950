from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pvi.cli import app

OPTIONS = ("--target", "died", "--rounds", "3", "--damping", "0.5")


@pytest.fixture
def call(monkeypatch):
    """Run ``pvi`` in this process, 80 characters wide and without colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, ward = rng.normal(60, 10, rows).round(1), rng.choice(["a", "b", "c"], rows)
    died = rng.random(rows) < 1 / (1 + np.exp(-(age - 60) / 10 - (ward == "c")))
    return pd.DataFrame({"age": age, "ward": ward, "dose": rng.integers(1, 60, rows), "died": died.astype(int)})


@pytest.fixture(scope="session")
def hospitals(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("hospitals")
    paths = [folder / "north.csv", folder / "south.csv"]
    for seed, path in enumerate(paths):
        frame(60 + 20 * seed, seed).to_csv(path, index=False)
    return paths


@pytest.fixture(scope="session")
def run_folder(hospitals, tmp_path_factory) -> Path:
    """A finished run; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    arguments = ["fit", *map(str, hospitals), *OPTIONS, "--out", str(folder)]
    outcome = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "COLUMNS": "80"})
    assert outcome.exit_code == 0, outcome.output
    return folder
