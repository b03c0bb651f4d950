"""The way to convergence: ELBO, its distance to the last one, held-out log density."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pvi.diagnostics.style import BLUE, DARK, DPI, GREY, GRID, ORANGE, RED, SMALL, hide, new_figure
from pvi.history import Round
from pvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def convergence(
    result: Result,
    path: str | Path,
    heldout: Sequence[float] | None = None,
    personal: Sequence[float] | None = None,
    *,
    simulated_time: bool = False,
) -> None:
    """ELBO against communications, its distance to the last one on a log axis, and held-out log density.

    ``heldout`` has one number a round, nats a row, and ``personal`` those by the clients' personal posteriors. Rounds
    with a shortened step, a rejected update, a repetition (``damping="auto"``) or an accelerated step are marked. With
    ``simulated_time`` the horizontal axis is the schedule's clock: asynchronous rounds then show how long clients were
    waited for. Raises ``ValueError`` where the rounds have no simulated time.
    """
    rounds = result.history
    sent: list[float] = list(accumulate(record.communications for record in rounds))
    if simulated_time:
        sent = [record.simulated_seconds for record in rounds]
        if not all(earlier < later for earlier, later in pairwise([0.0, *sent])):
            raise ValueError(f"the rounds have no simulated time that grows ({sent[:5]}...); plot communications")
    elbo = [record.elbo for record in rounds]
    shown = heldout is not None and any(math.isfinite(value) for value in heldout)
    panels = 3 if shown else 2
    figure = new_figure(3.9 * panels, 3.4)
    axes = figure.subplots(1, panels)
    error = [record.elbo_standard_error for record in rounds]
    axes[0].errorbar(sent, elbo, error if any(error) else None, color=BLUE, marker="o", ms=3.5, lw=1.4)
    axes[0].set_title(f"{result.elbo_name} (nats)", fontsize=10, loc="left")
    _late_range(axes[0], elbo, max(0.5, 4 * error[-1]))
    axes[0].ticklabel_format(axis="y", useOffset=False)
    gaps = [(x, elbo[-1] - value) for x, value in zip(sent[:-1], elbo[:-1], strict=True) if value != elbo[-1]]
    below = [(x, gap) for x, gap in gaps if gap > 0]
    above = [(x, -gap) for x, gap in gaps if gap < 0]
    axes[1].plot([x for x, _ in gaps], [abs(gap) for _, gap in gaps], color=BLUE, lw=1.4)
    axes[1].plot(*_columns(below), "o", ms=3.5, color=BLUE)
    axes[1].plot(*_columns(above), "o", ms=4, mec=BLUE, mfc="white", label=f"above the last {result.elbo_name}")
    axes[1].set_title(f"distance to the last {result.elbo_name} (nats)", fontsize=10, loc="left")
    axes[1].set_xlim(axes[0].get_xlim())
    if gaps:
        axes[1].set_yscale("log")
    else:
        axes[1].text(0.5, 0.5, "one round only", transform=axes[1].transAxes, ha="center", color=GREY)
        axes[1].set_yticks([])
    if shown and heldout is not None:
        label = "global" if personal else None
        axes[2].plot(sent[: len(heldout)], heldout, color=BLUE, marker="o", ms=3.5, lw=1.4, label=label)
        if personal:
            axes[2].plot(sent[: len(personal)], personal, color=ORANGE, marker="o", ms=3.5, lw=1.4, label="personal")
        axes[2].set_title("held-out log density (nats a row)", fontsize=10, loc="left")
        # One after the other, early rounds first: the late half holds the late rounds of both.
        both = [value for pair in zip(heldout, personal or heldout, strict=True) for value in pair]
        _late_range(axes[2], both, 0.005)
    _marks(axes[0], sent, result)
    for panel in axes:
        panel.set_xlabel("simulated time (s)" if simulated_time else "communications (messages)", fontsize=9)
        panel.grid(color=GRID, lw=0.8)
        panel.xaxis.get_major_locator().set_params(integer=not simulated_time)
        panel.tick_params(labelsize=SMALL)
        hide(panel, ("top", "right"))
        if panel.get_legend_handles_labels()[0] and (panel is not axes[1] or above):
            panel.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=DPI)


def _marks(axes: "Axes", sent: list[float], result: Result) -> None:
    """Accelerated rounds have points of another colour, since most may be; the rest open signs around their points."""
    points = list(zip(sent, result.history, strict=True))
    kinds: tuple[tuple[str, Callable[[Round], bool], dict[str, Any]], ...] = (
        ("accelerated", lambda one: bool(one.mixing), {"marker": "o", "ms": 4, "color": ORANGE}),
        ("repeated", lambda one: one.attempts > 1, {"marker": "s", "ms": 8, "color": DARK, "mew": 1.1}),
        ("step shortened", lambda one: one.step_fraction < 1, {"marker": "v", "ms": 7, "color": ORANGE, "mew": 1.4}),
        ("an update rejected", lambda one: bool(one.rejected), {"marker": "x", "ms": 7, "color": RED, "mew": 1.6}),
    )
    for label, holds, style in kinds:
        found = [(x, record.elbo) for x, record in points if holds(record)]
        if found:
            inside = "full" if label == "accelerated" else "none"
            axes.plot(*_columns(found), ls="", fillstyle=inside, label=label, zorder=3, **style)


def _late_range(axes: "Axes", values: list[float], least: float) -> None:
    """Cut off early rounds that would squeeze the others into a line, and say what was cut.

    Differences below ``least`` are not blown up.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return
    late = finite[len(finite) // 2 :]
    spread = max(max(late) - min(late), least)
    floor = min(late) - 3 * spread
    cut = sum(value < floor for value in finite) if len(finite) > 3 else 0
    bottom, top = floor if cut else min(finite), max(finite)
    middle, half = (bottom + top) / 2, max(top - bottom, least) / 2
    axes.set_ylim(middle - 1.1 * half, middle + 1.1 * half)
    if cut:
        text = f"not shown: {cut} early round{'s' if cut > 1 else ''}, from {min(finite):.4g}"
        axes.text(0.98, 0.03, text, transform=axes.transAxes, fontsize=8, color=DARK, ha="right")


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
