"""The forest plot where coefficients are anywhere that a float is."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.image import imread
from small_results import logistic

from pvi.diagnostics import forest, forest_plot
from pvi.diagnostics.style import new_figure


@pytest.fixture(scope="module")
def result():
    return logistic(rounds=1)


def moved(result, scale):
    """The same with other coefficients, the intervals' widths kept in proportion."""
    bars = forest_plot._bars(result)
    fields = ("mean", "sd", "lower", "upper")
    return [bar._replace(**{field: scale * getattr(bar, field) for field in fields}) for bar in bars]


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 0.1, 1, 3, 10, 30, 100, 150, 1e3, 1e6, 1e30, 1e129, 1e290])
def test_any_scale_can_be_drawn(scale, result, tmp_path, monkeypatch):
    figures, bars = [], moved(result, scale)
    monkeypatch.setattr(forest_plot, "_bars", lambda _: bars)
    monkeypatch.setattr(forest_plot, "new_figure", lambda *size: figures.append(new_figure(*size)) or figures[-1])
    forest(result, tmp_path / "forest.png")
    assert imread(tmp_path / "forest.png").shape[1] > 500
    axes, ratios = figures[0].axes
    assert axes.get_xlim() == ratios.get_xlim()
    ticks = ratios.get_xticks()
    assert len(ticks) < 12
    assert ("no axis of odds ratios" in ratios.get_xlabel()) == (scale > 300)
    if scale > 300:
        assert not len(ticks)
        return
    # No label touches the next one.
    places = [label.get_window_extent() for label in ratios.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(places))


@pytest.mark.parametrize("reach", np.geomspace(0.01, 690, 60))
def test_ticks_are_few_short_and_where_they_say(reach):
    for low, high in ((-reach, reach), (0.0, reach), (-reach, 0.0), (-0.3 * reach, reach)):
        ticks = forest_plot._ratio_ticks(low, high)
        assert len(ticks) <= 10
        for place, label in ticks.items():
            over, _, under = label.partition("/")
            assert math.isclose(place, math.log(float(over)) - math.log(float(under or 1)), abs_tol=1e-12)
            assert low <= place <= high
            assert len(label) <= 10
        assert reach < 2 or len(ticks) >= 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e305])
@pytest.mark.parametrize("field", ["mean", "upper"])
def test_what_is_not_finite_is_named(value, field, result, tmp_path, monkeypatch):
    first, *others = forest_plot._bars(result)
    monkeypatch.setattr(forest_plot, "_bars", lambda _: [first._replace(**{field: value}), *others])
    with pytest.raises(ValueError, match=rf"coefficient '{first.label}' cannot be drawn \(mean"):
        forest(result, tmp_path / "forest.png")
    assert not list(tmp_path.iterdir())


def test_a_posterior_beyond_floats_is_named(result, tmp_path):
    natural = result.posterior.natural.clone()
    natural[0] = 1e305
    far = dataclasses.replace(result, posterior=dataclasses.replace(result.posterior, natural=natural))
    with pytest.raises(ValueError, match="cannot be drawn"):
        forest(far, tmp_path / "forest.png")
