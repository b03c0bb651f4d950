"""The curves of an experiment: each metric against the messages sent, a line a method."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pvi.diagnostics.style import DARK, DPI, GREY, GRID, SMALL, hide, new_figure
from pvi.experiments.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f5f99", "#d9822b", "#2e8540", "#b3261e", "#6a51a3", "#11848f", "#a6611a", "#c2408a", "#5c6670", "#8aa929")
MARKERS = "osD^vP*X<>"
WIDTH, HEIGHT, ACROSS = 4.6, 3.3, 3
MARKED = 40
"""Markers of a line, about: more of them hide it."""
FLOOR = 1e-5
"""Nats that are rounding: the lower end of a log axis."""


def plot_curves(
    curves: pd.DataFrame, metrics: Sequence[str], title: str, path: str | Path, reference: str | None = None
) -> None:
    """Write a picture: small multiples, messages on a log axis; a line is the mean of the seeds.

    Metrics on a log axis, which are differences to the optimum of the same rows, have a band, the seeds' range. Others
    have none: it would show how test rows differ from seed to seed, and hide how methods do.

    ``reference`` is the method that is drawn as a level. Metrics that nobody measured are left out; where a curve
    falls far below the others' last values, the axis is cut there and the panel says so, as it does of infinite ones.
    """
    shown = [name for name in metrics if name in curves and curves[name].notna().any()]
    across = min(ACROSS, max(1, len(shown)))
    down = max(1, ceil(len(shown) / across))
    figure = new_figure(WIDTH * across, HEIGHT * down + 0.9)
    panels = np.atleast_1d(figure.subplots(down, across)).ravel()
    methods = [name for name in curves["method"].unique() if name != reference]
    finite = curves.replace([np.inf, -np.inf], np.nan)
    for panel, name in zip(panels, shown, strict=False):
        for index, method in enumerate(methods):
            _line(panel, finite[finite["method"] == method], name, method, index)
        _level(panel, finite[finite["method"] == reference], name)
        _range(panel, finite, name)
        infinite = int(np.isinf(curves[name]).sum())
        if infinite:
            said = f"{infinite} values are infinite"
            panel.text(0.98, 0.5, said, transform=panel.transAxes, fontsize=8, color=DARK, ha="right")
        panel.set_title(METRICS[name].label, fontsize=10, loc="left", color=DARK)
        panel.set_xscale("log")
        panel.set_xlabel("communications (messages)", fontsize=9)
        panel.grid(color=GRID, lw=0.8)
        panel.tick_params(labelsize=SMALL)
        hide(panel, ("top", "right"))
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.suptitle(title, fontsize=11, x=0.01, ha="left", color=DARK)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, max(1, len(labels))), fontsize=8.5,
                  frameon=False)  # fmt: skip
    figure.savefig(path, dpi=DPI)


def _line(axes: "Axes", curves: pd.DataFrame, metric: str, label: str, index: int) -> None:
    found = curves.dropna(subset=[metric]).groupby("round")
    if metric not in curves or not len(found):
        axes.plot(
            [], [], color=COLOURS[index % len(COLOURS)], marker=MARKERS[index % len(MARKERS)], ms=3.5, label=label
        )
        return
    messages, values = found["messages"].mean(), found[metric]
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    mean, low, high = values.mean(), values.min(), values.max()
    # A method of one round is a single point: it must not hide under a line that begins there.
    size, order = (3.5, 2) if len(mean) > 1 else (7, 3)
    often = max(1, len(mean) // MARKED)
    axes.plot(messages, mean, color=colour, marker=marker, ms=size, lw=1.3, zorder=order, label=label, markevery=often)
    if not METRICS[metric].log:
        return
    if len(mean) > 1:
        axes.fill_between(messages, low, high, color=colour, alpha=0.12, lw=0)
    else:
        axes.vlines(messages, low, high, color=colour, lw=1.3)


def _level(axes: "Axes", curves: pd.DataFrame, metric: str) -> None:
    """The reference has no communications: a level across the panel."""
    if not len(curves) or metric not in curves or not curves[metric].notna().any():
        return
    last = curves.dropna(subset=[metric]).groupby("seed")[metric].last()
    axes.axhline(float(last.mean()), color=GREY, lw=1.2, ls="--", label=str(curves["method"].iloc[0]))


def _range(axes: "Axes", curves: pd.DataFrame, metric: str) -> None:
    """Log where differences shrink by orders; else cut where early rounds would squeeze the rest into a line."""
    values = curves[metric].dropna()
    if METRICS[metric].log:
        if (values > FLOOR).any():
            axes.set_yscale("log")
            axes.set_ylim(bottom=max(float(values[values > 0].min()), FLOOR) / 2)
            under = int((values < FLOOR / 2).sum())
            if under:
                said = f"{under} values are below {FLOOR / 2:g}"
                axes.text(0.98, 0.03, said, transform=axes.transAxes, fontsize=8, color=DARK, ha="right")
        return
    drawn = curves.dropna(subset=[metric]).groupby(["method", "round"])[metric].mean()
    values, last = drawn, drawn.groupby("method").last()
    if not len(last):
        return
    better = METRICS[metric].higher_is_better
    ordered = np.sort(last.to_numpy() if better else -last.to_numpy())
    best, middle = ordered[-1], ordered[len(ordered) // 3]
    # One method alone has nobody to be squeezed by.
    floor = middle - 1.5 * max(best - middle, 1e-3 * max(1.0, abs(best))) if len(last) > 1 else -np.inf
    signed = values.to_numpy() if better else -values.to_numpy()
    cut = int((signed < floor).sum())
    bottom, top = (floor if cut else signed.min()), signed.max()
    pad = 0.05 * max(top - bottom, 1e-6)
    ends = (bottom - pad, top + pad) if better else (-(top + pad), -(bottom - pad))
    axes.set_ylim(*ends)
    if cut:
        where = f"{'below' if better else 'above'}, to {values.min() if better else values.max():.4g}"
        said = f"{cut} points lie {where}" if cut > 1 else f"a point lies {where}"
        place = 0.03 if better else 0.93
        axes.text(0.98, place, said, transform=axes.transAxes, fontsize=8, color=DARK, ha="right")
