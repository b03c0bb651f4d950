"""``pvi fit`` where a run ended far away or was stopped late: it ends, says what is true, and keeps its numbers."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray
from matplotlib.image import imread

import pvi
from pvi.cli import output, screen

FAR = {
    "fola": ("--algorithm", "fola", "--set", "learning_rate=1000"),
    "ditto": ("--algorithm", "ditto", "--set", "proximal=1000"),
    "fedavg": ("--algorithm", "fedavg", "--set", "learning_rate=1000"),
    "scaffold": ("--algorithm", "scaffold", "--set", "learning_rate=1000"),
}


@pytest.fixture(scope="module")
def wards(tmp_path_factory):
    rng = np.random.default_rng(0)
    paths = [tmp_path_factory.mktemp("wards") / f"{name}.csv" for name in ("north", "south")]
    for path in paths:
        age, dose, ward = rng.normal(60, 10, 40), rng.normal(5, 2, 40), rng.choice(["a", "b", "c"], 40)
        died = np.where(rng.random(40) < 1 / (1 + np.exp(-(age - 60) / 10)), "yes", "no")
        pd.DataFrame({"age": age, "dose": dose, "ward": ward, "died": died}).to_csv(path, index=False)
    return paths


@pytest.fixture
def fit(wards, call, tmp_path):
    arguments = ("--target", "died", "--positive", "yes", "--out", tmp_path / "run")
    return lambda *more: call("fit", *wards, *arguments, *more)


def words(outcome):
    return " ".join(outcome.output.split())


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", FAR)
def test_a_run_that_ended_far_away_is_written(name, fit, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        outcome = fit(*FAR[name], "--rounds", 3)
    assert outcome.exit_code == 0, outcome.output
    assert not [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    assert "left out" not in outcome.output
    for picture in ("forest.png", "convergence.png"):
        assert imread(tmp_path / "run" / picture).shape[1] > 500
    assert (tmp_path / "run/posterior.nc").exists()
    result = pvi.load(tmp_path / "run")
    own = [result.of_client(client).posterior for client in result.personal]
    furthest = max(float(part.mean["weights"].abs().max()) for part in (result.posterior, *own))
    assert furthest > 50  # else this test is of nothing


def test_tables_of_a_run_far_away_are_readable(fit):
    outcome = fit(*FAR["fola"], "--rounds", 3)
    tables = outcome.output[outcome.output.index("Coefficients") :]
    lines = [line for line in tables.splitlines() if not re.search("ELBO|^[-0-9.]+", line)]
    assert max(map(len, lines)) <= 80
    assert not re.search(r"\d{12}", "\n".join(lines))
    assert "…" not in tables
    (mean,) = re.findall(r"^ age +(\S+)", tables, re.MULTILINE)
    assert re.fullmatch(r"-?\d\.\d{5}e\+\d+", mean)


def test_a_picture_that_cannot_be_drawn_is_left_out(fit, tmp_path, monkeypatch):
    fit("--rounds", 1)
    assert (tmp_path / "run/forest.png").exists()

    def impossible(*_):
        raise ValueError("coefficient 'age' has no finite interval")

    monkeypatch.setattr(output, "forest", impossible)
    outcome = fit("--rounds", 1)
    assert outcome.exit_code == 0, outcome.output
    assert "forest.png was left out: coefficient 'age' has no finite interval." in words(outcome)
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert "forest.png" not in written
    assert {"posterior.nc", "convergence.png", "summary.csv", "history.csv", "result.json"} <= written


@pytest.mark.parametrize("replaced", [False, True])
def test_an_interrupt_while_pictures_are_drawn(replaced, fit, tmp_path, monkeypatch):
    if replaced:
        fit("--rounds", 1)
    monkeypatch.setattr(output, "forest", interrupt)
    outcome = fit("--rounds", 2)
    assert outcome.exit_code == 130
    said = words(outcome)
    assert "nothing was written" not in said
    assert "while their results were written" in said
    assert ("The earlier run there was replaced" in said) == replaced
    complete = said[said.index("complete: ") + 10 : said.index("; the others")].split(", ")
    assert set(complete) == {path.name for path in (tmp_path / "run").iterdir()}
    assert "posterior.nc" in complete
    assert not {"forest.png", "convergence.png"} & set(complete)
    assert len(pvi.load(tmp_path / "run").history) == 2
    with xarray.open_datatree(tmp_path / "run/posterior.nc", engine="h5netcdf") as tree:
        assert tree["posterior"]["weights"].shape[-1] == 4


def test_an_interrupt_within_the_first_files(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(pvi.Result, "save", interrupt)
    outcome = fit("--rounds", 1)
    assert outcome.exit_code == 130
    assert "none of them is complete" in words(outcome)
    assert not list((tmp_path / "run").iterdir())


def test_an_interrupt_between_rounds_and_files(fit, tmp_path, monkeypatch):
    fit("--rounds", 1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    monkeypatch.setattr(screen, "heldout_metrics", interrupt)
    outcome = fit("--rounds", 2)
    assert outcome.exit_code == 130
    assert "Stopped after the rounds, before any of their results was written; the earlier run" in words(outcome)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
