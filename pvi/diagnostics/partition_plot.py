"""Who holds what: rows of each class by client, and rows of each client."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pvi.data.partition.dealing import Labels, Parts, classes, leftover
from pvi.diagnostics.style import BLUE, DARK, DPI, FAINT, GREY, GRID, SMALL, hide, new_figure, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLASSES = 100
"""More distinct labels are taken for numbers that are no classes."""
NAMED = 30
"""Clients that have their names below them; of more, some."""
CELL = 0.3
"""Inches between clients and between classes, where there is room."""


def class_counts(parts: Parts, labels: Labels) -> NDArray[np.int64]:
    """Rows of each class by client ``[M, K]``, classes in the order of the sorted labels.

    Raises ``ValueError`` where clients share rows, or hold rows that have no label.
    """
    found = classes(labels)
    leftover(parts, len(found.codes))
    hands = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
    return np.array([np.bincount(found.codes[rows], minlength=len(found.values)) for rows in hands])


def plot_partition(parts: Parts, labels: Labels, path: str | Path | None = None) -> "Figure":
    """A picture of a partition: a bubble for each client and class, its area the number of rows; bars for all rows.

    ``parts`` are row numbers by client, as the recipes of :mod:`pvi.data.partition` give them; ``labels`` [n] are those
    of all rows, numbers or words. Rows that no client holds are counted in the title. Returns the figure, and writes it
    into a file where a ``path`` is given.

    Raises ``ValueError`` for parts that are no partition, for no clients, and for more than 100 different labels: cut
    numbers into classes first.
    """
    if not len(parts):
        raise ValueError("there are no clients to draw")
    found = classes(labels)
    if len(found.values) > MOST_CLASSES:
        raise ValueError(f"{len(found.values)} different labels are no classes: cut them into at most {MOST_CLASSES}")
    counts = class_counts(parts, labels)
    clients, kinds = counts.shape
    width, height = min(14.0, max(3.0, CELL * clients)), min(9.0, max(0.6, CELL * kinds))
    figure = new_figure(width + 1.2, height + 2.2)
    bars, bubbles = figure.subplots(2, 1, sharex=True, height_ratios=[1.0, height])
    bars.bar(np.arange(clients), counts.sum(1), width=0.7, color=GREY)
    bars.set_ylabel("rows", fontsize=SMALL)
    _bubbles(bubbles, counts, min(width / clients, height / kinds))
    bubbles.set_yticks(np.arange(kinds), [short(str(value), 16) for value in found.values.tolist()])
    bubbles.set_ylabel("class", fontsize=SMALL)
    names = [short(str(name), 16) for name in parts] if isinstance(parts, Mapping) else [str(m) for m in range(clients)]
    shown = np.arange(0, clients, -(-clients // NAMED))
    bubbles.set_xticks(shown, [names[place] for place in shown], rotation=90 if max(map(len, names)) > 3 else 0)
    bubbles.set_xlabel("client", fontsize=SMALL)
    rest = int(found.counts.sum() - counts.sum())
    title = f"{counts.sum():,} rows, {clients} clients, at most {counts.max():,} of a class"
    bars.set_title(title + (f"\n{rest:,} rows are with nobody" if rest else ""), fontsize=10, loc="left", color=DARK)
    for panel in (bars, bubbles):
        panel.tick_params(labelsize=SMALL, length=0)
        hide(panel, ("top", "right", "left"))
    if path is not None:
        figure.savefig(path, dpi=DPI)
    return figure


def _bubbles(axes: "Axes", counts: NDArray[np.int64], cell: float) -> None:
    """Discs whose areas are the counts, the largest as wide as its cell (inches)."""
    clients, kinds = counts.shape
    place, kind = np.nonzero(counts)
    # Areas of scatter are those of the square around a disc, in points (72 an inch).
    areas = (0.95 * 72 * cell) ** 2 * counts[place, kind] / max(1, counts.max())
    axes.set_axisbelow(True)
    axes.grid(color=GRID, lw=0.8)
    axes.scatter(place, kind, s=areas, color=BLUE, lw=0)
    axes.set_xlim(-0.7, clients - 0.3)
    axes.set_ylim(kinds - 0.4, -0.6)
    for client in np.flatnonzero(counts.sum(1) == 0):
        axes.axvspan(client - 0.5, client + 0.5, color=FAINT, zorder=0)
