"""The bundled network from the command line: numbers say its shape and its outcome."""

import io

import numpy as np
import pandas as pd
import pytest

OPTIONS = ("--model", "bayesian_mlp", "--argument", "hidden=3", "--rounds", 1, "--solver", "svi", "--drop", "ward")


@pytest.fixture
def wards(hospitals, tmp_path):
    """A number for each ward: 0, 1, 2."""
    paths = []
    for path in hospitals:
        table = pd.read_csv(path)
        table["place"] = table["ward"].map({"a": 0, "b": 1, "c": 2})
        paths.append(tmp_path / path.name)
        table.to_csv(paths[-1], index=False)
    return paths


def test_classes(wards, tmp_path, call, monkeypatch):
    # The outcome matters here, not how well it is learned.
    monkeypatch.setattr("pvi.solvers.SVI.num_steps", lambda self, rows: 20)
    folder = tmp_path / "run"
    outcome = call("fit", *wards, "--target", "place", *OPTIONS, "--argument", "classes=3", "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    assert "accuracy" in outcome.output
    assert "Brier score" in outcome.output
    outcome = call("predict", folder, wards[0], "--draws", 50)
    assert outcome.exit_code == 0, outcome.output
    lines = [line for line in outcome.stdout.splitlines() if line[:1].isdigit() or line.startswith("row,")]
    table = pd.read_csv(io.StringIO("\n".join(lines)))
    names = [f"{what} {place}" for place in range(3) for what in ("probability", "sd", "lower", "upper")]
    assert list(table.columns) == ["row", *names, "target"]
    assert np.allclose(table[[f"probability {place}" for place in range(3)]].sum(axis=1), 1, atol=1e-4)


def test_a_class_that_is_not_whole_or_too_large(wards, tmp_path, call):
    outcome = call("fit", *wards, "--target", "place", *OPTIONS, "--argument", "classes=2.5", "--out", tmp_path / "a")
    assert outcome.exit_code == 2
    assert "classes must be a whole number" in " ".join(outcome.output.split())
    outcome = call("fit", *wards, "--target", "dose", *OPTIONS, "--argument", "classes=3", "--out", tmp_path / "b")
    assert outcome.exit_code == 2
    assert "Traceback" not in outcome.output


def test_listed_with_its_arguments(call):
    outcome = call("models")
    for word in ("bayesian_mlp", "hidden=50", "depth=1", "classes=2", "activation=relu"):
        assert word in outcome.output
