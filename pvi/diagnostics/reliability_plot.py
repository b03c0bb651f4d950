"""A reliability diagram: how often what was predicted with some confidence came true."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pvi.diagnostics.classification import BINS, calibration_error, calibration_table
from pvi.diagnostics.style import BLUE, DARK, DPI, FAINT, GREY, GRID, SMALL, hide, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability(
    probabilities: ArrayLike, labels: ArrayLike, path: str | Path | None = None, bins: int = BINS, title: str = ""
) -> "Figure":
    """Frequency against confidence with 95 % intervals, and the rows of each bin below.

    Arguments and bins are those of :func:`~pvi.diagnostics.classification.calibration_table`: with ``[n]`` confidence
    is the probability of class 1, with ``[n, K]`` that of the likeliest class. Bars are the gaps between the two: their
    mean over rows is the calibration error in the title. Returns the figure, and writes it into a file where a
    ``path`` is given. Raises ``ValueError`` without rows.
    """
    table = calibration_table(probabilities, labels, bins)
    total = int(table["rows"].sum())
    if not total:
        raise ValueError("there are no rows to draw")
    is_binary = np.ndim(probabilities) == 1
    seen = table[table["rows"] > 0]
    x, y = seen["confidence"].to_numpy(), seen["frequency"].to_numpy()
    figure = new_figure(4.6, 5.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    above.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", zorder=1)
    above.vlines(x, np.minimum(x, y), np.maximum(x, y), color=FAINT, linewidth=9, zorder=0)
    ends = np.stack([y - seen["frequency_lower"], seen["frequency_upper"] - y]).clip(min=0)
    above.errorbar(x, y, yerr=ends, fmt="o", markersize=4, linewidth=1.2, color=BLUE, zorder=2)
    above.set_ylabel("frequency of class 1" if is_binary else "how often it is right", fontsize=SMALL)
    above.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    below.bar(table["lower"], table["rows"], width=1 / bins, align="edge", color=GREY, edgecolor="white", linewidth=0.6)
    below.set_ylabel("rows", fontsize=SMALL)
    below.set_xlabel(
        "predicted probability of class 1" if is_binary else "confidence of the likeliest class", fontsize=SMALL
    )
    error = calibration_error(probabilities, labels, bins)
    above.set_title(
        f"{title + ': ' if title else ''}calibration error {error:.3f}, {total:,} rows",
        fontsize=10,
        loc="left",
        color=DARK,
    )
    for panel in (above, below):
        panel.grid(color=GRID, linewidth=0.8)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=SMALL, length=0)
        hide(panel, ("top", "right"))
    if path is not None:
        figure.savefig(path, dpi=DPI)
    return figure
