import dataclasses

import numpy as np
import pytest
from matplotlib.image import imread
from small_results import constrained, logistic, regression_data

import pvi
from pvi.diagnostics import convergence, convergence_plot, forest, forest_plot
from pvi.diagnostics.style import new_figure, short


@pytest.fixture(scope="module")
def result():
    return logistic(rounds=6)


def ink(path):
    """The share of pixels that are not white."""
    picture = imread(path)[..., :3]
    return (picture < 0.99).any(-1).mean()


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were made."""
    figures = []
    for module in (convergence_plot, forest_plot):
        monkeypatch.setattr(module, "new_figure", lambda *size: figures.append(new_figure(*size)) or figures[-1])
    return figures


def test_forest(result, tmp_path, drawn):
    forest(result, tmp_path / "forest.png")
    assert ink(tmp_path / "forest.png") > 0.02
    axes, ratios = drawn[0].axes
    assert ratios.get_xlabel() == "odds ratio"
    means = result.posterior.mean["weights"].tolist()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    expected = [result.columns[index] for index in np.argsort(means)[::-1]]
    assert labels == [*expected, "bias"]
    low, high = axes.get_xlim()
    assert low < 0 < high


def test_forest_in_table_order(result, tmp_path, drawn):
    forest(result, tmp_path / "forest.png", sort=False)
    assert [label.get_text() for label in drawn[0].axes[0].get_yticklabels()] == [*result.columns, "bias"]


def test_forest_of_many_coefficients_shows_the_clearest(tmp_path, drawn):
    data = regression_data(columns=80)
    forest(pvi.fit("logistic_regression", data, rounds=1), tmp_path / "forest.png")
    assert len(drawn[0].axes[0].get_yticklabels()) == forest_plot.MOST
    assert "60 of 81" in drawn[0].get_suptitle()


def test_forest_of_other_models_has_no_ratios(tmp_path, drawn):
    forest(constrained(), tmp_path / "forest.png")
    assert len(drawn[0].axes) == 1


def test_convergence(result, tmp_path, drawn):
    convergence(result, tmp_path / "c.png", [-0.7, -0.6, -0.55, -0.54, -0.54, float("nan")])
    assert ink(tmp_path / "c.png") > 0.01
    assert len(drawn[0].axes) == 3
    sent = np.cumsum([record.communications for record in result.history])
    (line, *_) = drawn[0].axes[0].get_lines()
    assert list(line.get_xdata()) == list(sent)
    assert drawn[0].axes[1].get_yscale() == "log"


def test_late_rounds_are_visible(result, tmp_path, drawn):
    rounds = [record._replace(elbo=value) for record, value in zip(
        result.history, (-1e6, -1e4, -110.0, -104.0, -101.0, -100.0), strict=True)]  # fmt: skip
    convergence(dataclasses.replace(result, history=rounds), tmp_path / "c.png")
    axes = drawn[0].axes
    assert len(axes) == 2
    low, high = axes[0].get_ylim()
    assert high - low < 40
    assert any("2 early rounds" in text.get_text() for text in axes[0].texts)


def test_marks(result, tmp_path, drawn):
    info = next(iter(result.history[0].clients.values()))
    rounds = [
        result.history[0]._replace(step_fraction=0.4),
        result.history[1]._replace(clients={"north": info._replace(rejected="it broke")}),
        result.history[2]._replace(attempts=3),
        result.history[3]._replace(mixing=(0.4, 0.6), attempts=2),
        *result.history[4:],
    ]
    convergence(dataclasses.replace(result, history=rounds), tmp_path / "c.png")
    axes = drawn[0].axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["accelerated", "repeated", "step shortened", "an update rejected"]
    places = {line.get_label(): list(line.get_xdata()) for line in axes.get_lines()}
    assert places["repeated"] == [18, 24]
    assert places["accelerated"] == [24]


def test_simulated_time(tmp_path, drawn):
    schedule = pvi.schedules.Asynchronous(latency=[1.0, 1.0, 5.0])
    result = pvi.fit("logistic_regression", regression_data(), schedule=schedule, damping=0.5, rounds=4)
    convergence(result, tmp_path / "c.png", [-0.7, -0.6, -0.6, -0.6], simulated_time=True)
    times = [record.simulated_seconds for record in result.history]
    assert len(set(np.diff(times))) > 1
    for panel, count in zip(drawn[0].axes, (4, 3, 4), strict=True):
        assert list(panel.get_lines()[0].get_xdata()) == times[:count]
        assert panel.get_xlabel() == "simulated time (s)"
    timeless = [record._replace(simulated_seconds=0.0) for record in result.history]
    with pytest.raises(ValueError, match="no simulated time"):
        convergence(dataclasses.replace(result, history=timeless), tmp_path / "c.png", simulated_time=True)


@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds(result, tmp_path, rounds):
    short = dataclasses.replace(result, history=result.history[:rounds])
    convergence(short, tmp_path / "c.png", [-0.5] * rounds)
    assert ink(tmp_path / "c.png") > 0.005


def test_long_names_keep_their_ends():
    assert short("age") == "age"
    assert short("measurement of something in blood, 7", 20) == "measuremen… blood, 7"
