"""Runs by all parts of the method: they equal :func:`pvi.fit`, and say what matters."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import pvi
from pvi.algorithms import ALGORITHMS
from pvi.cli.live import line, warnings_on
from pvi.cli.options import FitOptions
from pvi.cli.pipeline import load_tables
from pvi.cli.summary import private_table, remarks

TARGET = ("--target", "died", "--holdout", "0.1")
LEARNED = """
import pyro
import pyro.distributions as dist
from torch.distributions import constraints


def model(x, y=None):
    scale = pyro.param("scale", x.new_tensor(1.0), constraint=constraints.positive)
    centre = pyro.param("centre", x.new_zeros(2))
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[-1]), scale.expand(x.shape[-1])).to_event(1))
    bias = pyro.sample("bias", dist.Normal(centre.sum(), x.new_tensor(1.0)))
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)
"""

COUNTS = """
import pyro
import pyro.distributions as dist


def model(x, y=None):
    rate = pyro.sample("rate", dist.Gamma(x.new_tensor(2.0), x.new_tensor(0.1)))
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Poisson(rate.expand(x.shape[0])), obs=y)
"""


@pytest.fixture
def learned(tmp_path) -> Path:
    (tmp_path / "learned.py").write_text(LEARNED)
    return tmp_path / "learned.py"


def fitted(call, hospitals, folder, *more):
    """The words and the result of ``pvi fit``."""
    outcome = call("fit", *hospitals, *TARGET, "--out", folder, *more)
    assert outcome.exit_code == 0, outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80
    return " ".join(outcome.output.split()), pvi.load(folder)


def directly(hospitals, model="logistic_regression", **more):
    """The same from Python."""
    tables = load_tables(FitOptions(files=tuple(map(str, hospitals)), target="died", holdout=0.1))
    return pvi.fit(model, tables, **more)


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"power-ep", "stochastic-ep"}))
def test_an_algorithm_by_its_name_alone(hospitals, tmp_path, call, name):
    record = ALGORITHMS[name]()
    own = record.solver is not None
    short = () if record.max_rounds is not None or (record.fixed and not own) else ("--rounds", 2)
    said, found = fitted(call, hospitals, tmp_path / "run", "--algorithm", name, *short)
    expected = directly(hospitals, algorithm=name, rounds=2 if short else None)
    assert torch.equal(found.posterior.natural, expected.posterior.natural)
    assert found.settings == expected.settings
    assert ("Not converged" in said) == (bool(short) and not own)
    assert ("2 rounds of noisy steps are too few to say whether they converged" in said) == own


@pytest.mark.parametrize(("name", "alpha"), [("power-ep", 0.5), ("stochastic-ep", 1.0)])
def test_alpha(hospitals, tmp_path, call, name, alpha):
    _, found = fitted(call, hospitals, tmp_path / "run", "--algorithm", name, "--alpha", alpha, "--rounds", 1)
    assert (found.settings["algorithm"], found.settings["alpha"]) == (name, alpha)
    options = json.loads((tmp_path / "run/config.json").read_text())["options"]
    assert (options["alpha"], options["schedule"], options["damping"]) == (alpha, None, None)


def test_asynchronous(hospitals, tmp_path, call):
    more = ("--schedule", "asynchronous", "--latency", "south=10,north=1", "--rounds", 8)
    said, found = fitted(call, hospitals, tmp_path / "run", *more)
    expected = directly(hospitals, schedule=pvi.schedules.Asynchronous(latency=[1.0, 10.0]), rounds=8)
    assert torch.equal(found.posterior.natural, expected.posterior.natural)
    stale = max(record.max_staleness for record in expected.history)
    assert stale > 1
    assert f"time {expected.history[0].simulated_seconds:g} s" in said
    assert f"staleness {stale}" in said
    assert f"Simulated time: {expected.history[-1].simulated_seconds:g} s." in said
    assert f"the server had taken up to {stale} steps more" in said
    _, again = fitted(call, hospitals, tmp_path / "again", "--config", tmp_path / "run")
    assert torch.equal(again.posterior.natural, found.posterior.natural)


def test_a_random_subset_draws_from_the_seed(hospitals, tmp_path, call):
    more = ("--schedule", "random-subset", "--subset-size", 1, "--rounds", 3)
    drawn = set()
    for seed in (0, 1):
        _, found = fitted(call, hospitals, tmp_path / "run", *more, "--seed", seed)
        drawn.add(tuple(client for record in found.history for client in record.clients))
    assert all(len(clients) == 3 for clients in drawn)
    assert len(drawn) == 2


def test_acceleration_and_a_searched_damping(hospitals, tmp_path, call):
    more = ("--acceleration", "anderson", "--memory", 3, "--damping", "auto", "--rounds", 4)
    said, found = fitted(call, hospitals, tmp_path / "run", *more)
    expected = directly(hospitals, acceleration=pvi.Anderson(memory=3), damping="auto", rounds=4)
    assert torch.equal(found.posterior.natural, expected.posterior.natural)
    mixed = sum(bool(record.mixing) for record in expected.history)
    assert mixed > 1
    assert said.count(" accelerated ") == mixed
    assert f"Acceleration: {mixed} of 4 rounds mixed earlier ones" in said
    for record in expected.history:
        assert f"damping {record.damping:.3g}" in said
    assert "rounds that lowered the ELBO were taken back" in said


def test_decay(hospitals, tmp_path, call):
    said, found = fitted(call, hospitals, tmp_path / "run", "--damping", "decay:0.5:1", "--rounds", 3)
    assert [record.damping for record in found.history] == [0.5, 0.25, 0.5 / 3]
    assert "Damping: 0.306 on average, 0.167 in the last round." in said
    assert "taken back" not in said


def test_rounds_taken_back_and_searches_in_words():
    options = FitOptions(files=(), target="died", damping="auto")
    record = pvi.Round(1, -5.0, 0.0, {}, 0.0, 0, 0, 0.0, 0.0, 1.0, 0.0, {}, damping=0.25, attempts=2)
    assert line(record, float("nan"), options) == "ELBO -5.000  damping 0.25 (2 attempts)"
    (said,) = remarks(options, [record, record._replace(attempts=3)])
    assert said == "Damping: 0.25 on average, 0.25 in the last round; 3 rounds that lowered the ELBO were taken back."
    assert list(remarks(FitOptions(files=(), target="died"), [record])) == []


def test_hyperparameters(hospitals, tmp_path, call, learned):
    arguments = ("--model", f"{learned}:model", "--positive", 1, "--rounds", 2)
    outcome = call("fit", *hospitals, *TARGET, "--out", tmp_path / "run", *arguments)
    assert outcome.exit_code == 2
    assert "hyperparameters ['centre', 'scale']" in outcome.output
    assert "(here: --learn all, --learn NAME, or --learn none)" in outcome.output
    assert len([line for line in outcome.output.splitlines() if line.startswith("Error: ")]) == 1
    expected = directly(hospitals, model=f"{learned}:model", learn=["scale"], rounds=2)
    said, found = fitted(call, hospitals, tmp_path / "run", *arguments, "--learn", "scale")
    scale = float(expected.hyperparameters["scale"])
    assert float(found.hyperparameters["scale"]) == scale
    assert scale != 1
    assert f"scale {scale:.4g}" in said
    written = pd.read_csv(tmp_path / "run/hyperparameters.csv", index_col="hyperparameter")
    assert written["value"].to_dict() == {"scale": pytest.approx(scale), "centre[0]": 0.0, "centre[1]": 0.0}
    assert written["learned"].to_dict() == {"scale": True, "centre[0]": False, "centre[1]": False}
    assert "hyperparameters.csv" in said
    said, found = fitted(call, hospitals, tmp_path / "run", *arguments, "--learn", "all")
    assert set(found.history[-1].hyperparameters) == {"scale", "centre"}
    assert "centre[1]" in said
    _, found = fitted(call, hospitals, tmp_path / "run", *arguments, "--learn", "none")
    assert float(found.hyperparameters["scale"]) == 1
    assert found.history[-1].hyperparameters == {}
    fitted(call, hospitals, tmp_path / "run", "--rounds", 1)
    assert not (tmp_path / "run/hyperparameters.csv").exists()


def test_private_latents(hospitals, tmp_path, call):
    more = ("--model", "mixed_logistic_regression", "--guide", "full", "--rounds", 2)
    said, found = fitted(call, hospitals, tmp_path / "run", *more)
    place = said.index("Private latents")
    for client, posterior in found.private.items():
        place = said.index(f"{client} effect {posterior.mean['effect']:.3f} {posterior.sd['effect']:.3f}", place)
    assert "Private latents belong to one client. Its held-out rows are predicted with them." in said
    tables = load_tables(
        FitOptions(files=tuple(map(str, hospitals)), target="died", holdout=0.1, model="mixed_logistic_regression")
    )
    written = pd.read_csv(tmp_path / "run/heldout.csv", index_col="client")
    for client, (x, y) in tables.holdout.items():
        alone = found.log_predictive_density(x, y, num_samples=1000, client=client)["y"].mean()
        assert np.isclose(written.loc[client, "log_density"], float(alone))
    own, new = (call("predict", tmp_path / "run", hospitals[0], *client) for client in (("--client", "north"), ()))
    first = [float(outcome.stdout.splitlines()[1].split(",")[1]) for outcome in (own, new)]
    x = torch.cat([tables.training["north"][0][:0], tables.schema.encode(pd.read_csv(hospitals[0], dtype=str))])
    expected = [found.predict_mean(x, client=client, method="draws")["y"][0] for client in ("north", None)]
    assert np.allclose(first, expected, rtol=1e-5)
    y = tables.schema.encode_target(pd.read_csv(hospitals[0], dtype=str))
    for outcome, client in ((own, "north"), (new, None)):
        assert "Against the target" in outcome.output
        (line,) = [line for line in outcome.output.splitlines() if line.startswith((" north", "north"))]
        density = found.log_predictive_density(x, y, client=client)["y"].mean()
        assert f" {density:.3f} " in line
    assert "no latents of its own" in call("predict", tmp_path / "run", hospitals[0], "--client", "east").output


def test_an_argument_that_is_none(hospitals):
    options = FitOptions(files=(), target="died", model="mixed_logistic_regression", argument=("effect_scale=none",))
    assert options.model_arguments() == {"effect_scale": None}


def test_private_latents_beyond_the_first_lines_are_counted(hospitals, monkeypatch):
    result = directly(hospitals, model="mixed_logistic_regression", rounds=1)
    monkeypatch.setattr("pvi.cli.summary.MOST", 1)
    table, said = private_table(result)
    assert table.row_count == 1
    assert "Not shown: 1 of 2 lines of private latents; pvi.load(folder).private has them." in said
    table, said = private_table(replace(result, by_row=("effect",)))
    assert table is None
    assert said.startswith("Private latents belong to one client. Those with one value a row are new in held-out rows.")
    assert "Not shown: latents with one value a row (effect); pvi.load(folder).private has them." in said


def test_a_run_that_diverges_is_said_while_it_goes_on_and_at_the_end(hospitals, tmp_path, call):
    said, found = fitted(call, hospitals, tmp_path / "run", "--algorithm", "streaming-vb", "--rounds", 8)
    assert found.history[-1].elbo < found.history[0].elbo - 1
    assert said.count("Warning: the ELBO falls") == 1
    assert said.index("Warning: the ELBO falls") < said.index("round 8/8")
    assert said.index("The ELBO falls (from") > said.index("Held-out rows")


def test_warnings_of_the_library_are_shown_on_the_console(capsys):
    from rich.console import Console

    with warnings_on(Console(width=80)):
        logging.getLogger("pvi").warning("updates of %d clients [bold]", 2)
    assert capsys.readouterr().out == "Warning: updates of 2 clients [bold]\n"
    assert logging.getLogger("pvi").handlers == []


def test_the_conjugate_guide_against_its_closed_form(hospitals, tmp_path, call):
    (tmp_path / "counts.py").write_text(COUNTS)
    outcome = call("fit", *hospitals, "--target", "dose", "--model", f"{tmp_path}/counts.py:model", "--guide",
                   "conjugate", "--damping", 1, "--rounds", 1, "--holdout", 0, "--out", tmp_path / "run")  # fmt: skip
    assert outcome.exit_code == 0, outcome.output
    counts = np.concatenate([pd.read_csv(path)["dose"] for path in hospitals])
    shape, rate = 2 + counts.sum(), 0.1 + len(counts)
    found = pvi.load(tmp_path / "run").posterior
    assert float(found.mean["rate"]) == pytest.approx(shape / rate, rel=1e-10)
    assert float(found.sd["rate"]) == pytest.approx(shape**0.5 / rate, rel=1e-10)
    (row,) = pd.read_csv(tmp_path / "run/summary.csv").to_dict("records")
    assert row["mean"] == pytest.approx(shape / rate, rel=1e-10)
