"""Personal posteriors in exports and pictures."""

import json
import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray
from matplotlib.colors import to_hex
from small_personal import hospitals, personal

from pvi.diagnostics import convergence, convergence_plot, forest, forest_plot, to_datatree, to_netcdf, variables
from pvi.diagnostics.style import new_figure

N = 2000
CLIENTS = ["north", "south", "island"]


@pytest.fixture(scope="module")
def tree():
    return to_datatree(personal(), num_samples=N, seed=3)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were made."""
    figures = []
    for module in (convergence_plot, forest_plot):
        monkeypatch.setattr(module, "new_figure", lambda *size: figures.append(new_figure(*size)) or figures[-1])
    return figures


def test_the_draws_lie_along_the_clients_beside_the_global_ones(tree):
    result, found = personal(), tree["posterior/personal_weights"]
    assert found.dims == ("chain", "draw", "client", "feature")
    assert tree["posterior/personal_bias"].dims == ("chain", "draw", "client")
    assert list(found.client.values) == CLIENTS
    assert tree["posterior/weights"].dims == ("chain", "draw", "feature")
    whose = {client: (found.sel(client=client), posterior) for client, posterior in result.personal.items()}
    whose["global"] = (tree["posterior/weights"], result.posterior)
    for draws, posterior in whose.values():
        error = posterior.sd["weights"].numpy() / math.sqrt(N)
        assert (np.abs(draws.values[0].mean(0) - posterior.mean["weights"].numpy()) < 5 * error).all()
        assert np.allclose(draws.values[0].std(0), posterior.sd["weights"], rtol=5 / math.sqrt(2 * N))
    between = np.corrcoef(found.values[0, :, :, 0].T)
    assert np.abs(between - np.eye(3)).max() < 5 / math.sqrt(N)


def test_rows_are_those_of_the_global_posterior(tree):
    result, draws = personal(), tree["posterior"]
    x, y = (torch.cat(parts).numpy() for parts in zip(*hospitals(seed=0).values(), strict=True))
    logits = draws["weights"].values[0] @ x.T + draws["bias"].values[0][:, None]
    expected = y * logits - np.logaddexp(0, logits)
    assert np.allclose(tree["log_likelihood/y"].values[0], expected)
    assert tree.attrs["elbo_name"] == "objective"
    assert json.loads(tree.attrs["settings"])["objective"] == "Σ_m (E_q_m[log p(y_m | θ)] - KL(q_m, q))"
    assert tree.attrs["elbo"] == result.elbo


def test_a_client_by_itself():
    result = personal().of_client("north")
    found = result.to_arviz(num_samples=N)
    assert "personal_weights" not in found["posterior"]
    mean, sd = (part["weights"].numpy() for part in (result.posterior.mean, result.posterior.sd))
    drawn = found["posterior"]["weights"].values[0]
    assert (np.abs(drawn.mean(0) - mean) < 5 * sd / math.sqrt(N)).all()
    assert set(found["observed_data"]["y"].client.values) == {"north"}
    assert found["observed_data"]["y"].size == len(hospitals(seed=0)["north"][1])
    assert "objective" in repr(result)
    assert "ELBO" not in repr(result)


def test_a_netcdf_file_holds_them_and_arviz_summarises_them(tmp_path):
    import arviz

    to_netcdf(personal(), tmp_path / "posterior.nc", 50, rows=False)
    with xarray.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as tree:
        assert list(tree["posterior/personal_weights"].client.values) == CLIENTS
    read = arviz.from_netcdf(tmp_path / "posterior.nc")
    summary = arviz.summary(read, var_names=["weights", "personal_weights"], kind="stats")
    assert "personal_weights[north, age]" in summary.index


def test_too_many_draws_are_left_out_with_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(variables, "MOST_NUMBERS", 3 * 4 * N - 1)
    with caplog.at_level(logging.WARNING, "pvi"):
        found = to_datatree(personal(), num_samples=N, rows=False)
    assert set(found["posterior"].data_vars) == {"weights", "bias"}
    assert "result.of_client(name)" in caplog.text


def test_the_forest_shows_the_clients_beside_the_global_posterior(tmp_path, drawn):
    result = personal()
    forest(result, tmp_path / "forest.png")
    (figure,) = drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["global", *CLIENTS]
    axes = figure.axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    order = [["age", "dose", "sex=f"].index(label) for label in labels[:-1]]
    colours = [to_hex(line.get_color()) for line in figure.legends[0].get_lines()]
    for colour, posterior in zip(colours, [result.posterior, *result.personal.values()], strict=True):
        points = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
        means = [line.get_xdata()[0] for line in points if to_hex(line.get_markeredgecolor()) == colour]
        assert np.allclose(means, [*posterior.mean["weights"][order].tolist(), posterior.mean["bias"]])
    forest(result.of_client("north"), tmp_path / "north.png")
    assert not drawn[1].legends


def test_of_many_clients_the_forest_shows_the_means(tmp_path, drawn):
    result = personal()
    many = {f"client {index}": list(result.personal.values())[index % 3] for index in range(9)}
    forest(replace(result, personal=many), tmp_path / "forest.png")
    (figure,) = drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["global", "means of 9 clients"]
    assert sum(len(line.get_xdata()) == 9 for line in figure.axes[0].lines) == 4


def test_the_picture_of_the_rounds_says_objective(tmp_path, drawn):
    convergence(personal(), tmp_path / "convergence.png")
    assert [axes.get_title("left") for axes in drawn[0].axes] == [
        "objective (nats)",
        "distance to the last objective (nats)",
    ]
    rounds = len(personal().history)
    shared, own = ([start + 0.01 * index for index in range(rounds)] for start in (-0.7, -0.6))
    convergence(personal(), tmp_path / "convergence.png", shared, own)
    lines = drawn[1].axes[2].lines
    assert [line.get_label() for line in lines] == ["global", "personal"]
    assert [list(line.get_ydata()) for line in lines] == [shared, own]
