"""How the pictures look: one palette, figures without matplotlib's global state."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY, FAINT, RED, ORANGE = "#1f5f99", "#8a8f96", "#e6e8eb", "#b3261e", "#d9822b"
DARK, GRID = "#33373d", "#eef0f2"
DPI = 150
SMALL = 8.5


def new_figure(width: float, height: float) -> "Figure":
    """A figure in inches that belongs to nobody but the caller; importing matplotlib takes a second."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def hide(axes: "Axes", sides: Sequence[str]) -> None:
    """Take away the frame's lines on these sides."""
    for side in sides:
        axes.spines[side].set_visible(False)


def short(label: str, most: int = 34) -> str:
    """A label cut in its middle, since names of columns often differ in their ends."""
    head, tail = most // 2, most - most // 2 - 1
    return label if len(label) <= most else f"{label[:head]}…{label[-tail:]}"
