"""FOLA's pictures over all methods: accuracy between two clients' posteriors, and accuracies against densities."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pvi.diagnostics.style import DARK, DPI, GREY, GRID, SMALL, hide, new_figure
from pvi.experiments.figures import COLOURS, MARKERS
from pvi.experiments.fola_tables import PAIRS, coefficients, correlation_table, ridge_table
from pvi.experiments.folder import OWN_PICTURE
from pvi.experiments.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 5.4, 3.9
FLOOR = 1e-2
"""Nats above the least that are drawn as so many, on the log axis."""


def plot_ridge(curves: pd.DataFrame, folder: Path) -> None:
    """``picture-ridge.png`` and ``.csv``: GA along π_1, a panel a round, a line a method (the mean of the seeds)."""
    found = ridge_table(curves)
    if not len(found):
        return
    found.to_csv(folder / f"{OWN_PICTURE}ridge.csv", index=False)
    rounds = sorted(found["round"].unique())
    figure = new_figure(WIDTH * len(rounds), HEIGHT + 0.9)
    panels = figure.subplots(1, len(rounds), sharey=True, squeeze=False)[0]
    for panel, number in zip(panels, rounds, strict=True):
        for index, method in enumerate(curves["method"].unique()):
            chosen = found[(found["method"] == method) & (found["round"] == number)].groupby("pi_1")["ga"].mean()
            panel.plot(chosen.index, chosen, color=COLOURS[index % len(COLOURS)], lw=1.5, label=method,
                       ls="--" if "offline" in method else "-")  # fmt: skip
        panel.set_title(f"after round {number}", fontsize=10, loc="left", color=DARK)
        panel.set_xlabel("π of client 1", fontsize=9)
        _plain(panel)
    panels[0].set_ylabel(METRICS["ga"].label, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.suptitle("Between two clients' posteriors", fontsize=11, x=0.01, ha="left", color=DARK)
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8.5, frameon=False)
    figure.savefig(folder / f"{OWN_PICTURE}ridge.png", dpi=DPI)


def plot_correlation(curves: pd.DataFrame, folder: Path) -> None:
    """``picture-correlation.png``, its points and their coefficients as ``.csv``.

    Across: nats above the least, that of the optimum itself; a colour an α, a marker a method.
    """
    found = correlation_table(curves)
    if not len(found):
        return
    table = coefficients(found)
    found.to_csv(folder / f"{OWN_PICTURE}correlation.csv", index=False)
    table.to_csv(folder / f"{OWN_PICTURE}coefficients.csv", index=False)
    methods, alphas = list(found["method"].unique()), sorted(found["alpha"].unique())
    figure = new_figure(WIDTH * len(PAIRS), HEIGHT + 0.9)
    for panel, (distance, accuracy) in zip(figure.subplots(1, len(PAIRS)), PAIRS, strict=True):
        said = []
        for index, alpha in enumerate(alphas):
            of_alpha, colour = found[found["alpha"] == alpha], COLOURS[index % len(COLOURS)]
            rows = table[(table["alpha"] == alpha) & (table["distance"] == distance)]
            rank = float(rows["spearman"].iloc[0])
            said.append(f"α = {alpha:g}: {rank:+.2f}")
            for place, method in enumerate(methods):
                chosen = of_alpha[of_alpha["method"] == method]
                above = np.maximum(chosen[distance] - chosen["least"], FLOOR)
                panel.scatter(above, chosen[accuracy], s=14, color=colour, marker=MARKERS[place % len(MARKERS)],
                              alpha=0.7, lw=0)  # fmt: skip
        panel.set_xscale("log")
        panel.set_xlabel(f"{distance.upper()} above that of the optimum (nats)", fontsize=9)
        panel.set_ylabel(METRICS[accuracy].label, fontsize=9)
        panel.set_title(f"rank correlation  {',  '.join(said)}", fontsize=SMALL, loc="left", color=DARK)
        _plain(panel)
    axes = figure.axes[0]
    shown = [axes.scatter([], [], s=20, color=GREY, marker=MARKERS[k % len(MARKERS)]) for k in range(len(methods))]
    shown += [axes.scatter([], [], s=20, color=COLOURS[k % len(COLOURS)]) for k in range(len(alphas))]
    labels = [*methods, *[f"α = {alpha:g}" for alpha in alphas]]
    figure.suptitle("Accuracies and densities", fontsize=11, x=0.01, ha="left", color=DARK)
    figure.legend(shown, labels, loc="outside lower center", ncols=6, fontsize=8.5, frameon=False)
    figure.savefig(folder / f"{OWN_PICTURE}correlation.png", dpi=DPI)


def _plain(panel: "Axes") -> None:
    panel.grid(color=GRID, lw=0.8)
    panel.tick_params(labelsize=SMALL)
    hide(panel, ("top", "right"))
