"""The experiment on the rate: a tiny run from end to end, and its parts by hand."""

import runpy
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pyro import poutine

import pvi
from pvi.models import bayesian_mlp

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rate.py"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.mark.slow
def test_it_runs(script, tmp_path, capsys, monkeypatch):
    picture = tmp_path / "rate.png"
    options = ["--rows", "20", "40", "--clients", "2", "--seeds", "2", "--rounds", "2", "--out", str(picture)]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    script["main"]()
    lines = capsys.readouterr().out.split("\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert [row[0] for row in cells] == ["n", "---", "20", "40", "slope"]
    assert [row[1] for row in cells[2:4]] == ["25", "31"]  # 9 n^(1/3) is 24.4 and 30.8; weights are 3 units + 1
    assert all(float(value) > 0 for row in cells[2:4] for value in row[2:])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_truths_are_lipschitz_and_rough_on_every_scale(script):
    function = script["lipschitz"](np.random.default_rng(0))
    x = np.linspace(0, 1, 2**16 + 1)
    values = function(x)
    assert np.abs(np.diff(values)).max() <= 4 * script["LEVELS"] * 2**-16 * (1 + 1e-9)
    for lag in 2 ** np.arange(5, 13):
        # A mean square increment of h² and more, times the number of scales above h, as rough functions have.
        ratio = np.mean((values[lag:] - values[:-lag]) ** 2) / (lag / 2**16) ** 2
        assert 4 < ratio < 16 * script["LEVELS"]


def test_more_rows_come_from_the_same_truths(script):
    few, many = script["clients"](20, 3, 0), script["clients"](40, 3, 0)
    x = np.linspace(0, 1, 7, endpoint=False)
    for name in few:
        np.testing.assert_array_equal(few[name].truth(x), many[name].truth(x))
        assert (len(few[name].x), len(many[name].y)) == (20, 40)
    assert np.abs(few["client 0"].truth(x) - few["client 1"].truth(x)).max() > 0.1
    client = script["clients"](4000, 1, 1)["client 0"]
    noise = client.y - client.truth(client.x)
    assert abs(noise.std() - 0.5) < 5 * 0.5 / np.sqrt(2 * 4000)


def test_binned_means(script):
    client = script["Client"](np.array([0.1, 0.2, 0.7]), np.array([1.0, 3.0, 8.0]), np.sin)
    # Four bins: the first has 0.1 and 0.2, the third 0.7, the others nothing.
    np.testing.assert_array_equal(script["binned"](client, 4, np.array([0.05, 0.3, 0.74, 0.99])), [2.0, 4.0, 8.0, 4.0])


def test_outputs_are_the_model_s(script):
    program = partial(bayesian_mlp.model, hidden=3, noise_scale=0.5)
    x = np.array([0.0, 0.4, 1.0])
    data = script["features"](x)
    result = pvi.fit(program, [(data, torch.zeros(3))], solver=pvi.solvers.SVI(steps=2), rounds=1)
    found = script["outputs"](result.posterior, x, 7)
    draws = result.posterior.sample(script["DRAWS"], torch.Generator().manual_seed(7))
    for index in (0, 5):
        values = {name: value[index] for name, value in draws.items()}
        trace = poutine.trace(poutine.condition(program, values)).get_trace(data)
        np.testing.assert_allclose(found[index], trace.nodes["y"]["fn"].loc.numpy(), rtol=1e-5, atol=1e-5)


def test_binned_means_have_the_minimax_slope(script):
    rows, found = [50, 200, 800, 3200], []
    for seed in range(12):
        line = []
        for n in rows:
            x = np.random.default_rng([1, seed]).uniform(size=1000)
            bins = round(2 * n ** (1 / 3))
            data = script["clients"](n, 4, seed).values()
            line.append(np.mean([np.mean((script["binned"](one, bins, x) - one.truth(x)) ** 2) for one in data]))
        found.append(line)
    mean, error = script["slope"](rows, np.array(found))
    # Mean square increments of these truths are h² log(1 / h), not h²: with h ∝ n^(-1/3), 0.05 flatter at these n.
    assert abs(mean - (-2 / 3 + 0.05)) < 5 * error < 0.15


def test_slopes(script):
    mean, error = script["slope"]([10, 100, 1000], np.array([[1.0, 0.1, 0.01], [5.0, 0.05, 0.0005]]))
    assert (mean, error) == (pytest.approx(-1.5), pytest.approx(0.5))
    assert np.isnan(script["slope"]([10, 100], np.array([[1.0, 0.1]]))[1])
