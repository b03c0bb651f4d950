import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from data.test_images import idx
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


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """400 images of which each class has bright rows of its own, in MNIST's files."""
    folder = tmp_path_factory.mktemp("digits")
    (folder / "mnist").mkdir()
    rng = np.random.default_rng(0)
    for stem, rows in (("train", 400), ("t10k", 50)):
        labels = np.arange(rows) % 10
        pixels = rng.integers(0, 100, (rows, 28, 28))
        for k in range(10):
            pixels[labels == k, 2 * k : 2 * k + 3] += 150
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            (folder / f"mnist/{stem}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(values), 1))
    return folder


@pytest.fixture
def digits(few, monkeypatch):
    """The folder of few images, where so many are expected."""
    monkeypatch.setattr("pvi.data.images.ROWS", {"train": 400, "test": 50})
    return few
