"""Two pictures of a result, drawn without matplotlib's global state: coefficients, and the way to convergence."""

import math
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pvi.diagnostics.labels import element_labels
from pvi.diagnostics.marginals import interval
from pvi.diagnostics.ratios import ratio_name
from pvi.posterior import Posterior
from pvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREY, FAINT, RED, ORANGE = "#1f5f99", "#8a8f96", "#e6e8eb", "#b3261e", "#d9822b"
MOST = 60
"""Coefficients in one picture; more cannot be read."""
DPI = 150


class Bar(NamedTuple):
    """One line of the forest plot: the 95 % intervals of posterior and prior."""

    label: str
    is_scalar: bool
    mean: float
    sd: float
    lower: float
    upper: float
    prior_lower: float
    prior_upper: float


def forest(result: Result, path: str | Path, sort: bool = True) -> None:
    """Posterior means and 95 % intervals by coefficient, the prior's intervals behind them, as a picture file.

    ``sort`` puts the largest mean on top and scalars (the intercept) last; else the order is that of the table. Of
    more than 60 coefficients those with the largest |mean| / sd are shown. Logistic and Poisson regressions have a
    second axis with ratios.
    """
    bars = _bars(result)
    total = len(bars)
    if total > MOST:
        kept = {bar.label for bar in sorted(bars, key=lambda bar: -abs(bar.mean) / max(bar.sd, 1e-300))[:MOST]}
        bars = [bar for bar in bars if bar.label in kept]
    if sort:
        bars = sorted(bars, key=lambda bar: (bar.is_scalar, -bar.mean))
    figure = _figure(7.0, 1.3 + 0.23 * len(bars))
    axes = figure.subplots()
    for place, bar in enumerate(bars):
        clear = bar.lower * bar.upper > 0
        colour = BLUE if clear else GREY
        axes.plot(
            [bar.prior_lower, bar.prior_upper], [place, place], color=FAINT, lw=7, solid_capstyle="butt", zorder=1
        )
        axes.plot([bar.lower, bar.upper], [place, place], color=colour, lw=1.8, solid_capstyle="butt", zorder=3)
        axes.plot([bar.mean], [place], "o", ms=4.5, mec=colour, mfc=colour if clear else "white", zorder=4)
    low, high = min(0.0, *(bar.lower for bar in bars)), max(0.0, *(bar.upper for bar in bars))
    margin = 0.05 * (high - low or 1.0)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.axvline(0, color="#33373d", lw=0.9, zorder=2)
    axes.set_yticks(range(len(bars)), [_short(bar.label) for bar in bars], fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eef0f2", lw=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.set_xlabel(
        "coefficient: posterior mean and 95 % interval (open: includes zero; grey band: prior)", fontsize=8.5
    )
    _bare(axes, ("top", "right", "left"))
    ratio = ratio_name(result)
    if ratio:
        _ratio_axis(axes, ratio.replace("_", " "), low - margin, high + margin)
    if total > MOST:
        figure.suptitle(f"the {MOST} of {total} coefficients with the largest |mean| / sd", fontsize=9)
    figure.savefig(path, dpi=DPI)


def convergence(result: Result, path: str | Path, heldout: Sequence[float] | None = None) -> None:
    """ELBO against communications, its distance to the last one on a log axis, and held-out log density.

    ``heldout`` has one number a round, nats a row. Rounds with a shortened step or a rejected update are marked.
    """
    rounds = result.history
    sent = list(accumulate(record.communications for record in rounds))
    elbo = [record.elbo for record in rounds]
    shown = heldout is not None and any(math.isfinite(value) for value in heldout)
    panels = 3 if shown else 2
    figure = _figure(3.9 * panels, 3.4)
    axes = figure.subplots(1, panels)
    error = [record.elbo_standard_error for record in rounds]
    axes[0].errorbar(sent, elbo, error if any(error) else None, color=BLUE, marker="o", ms=3.5, lw=1.4)
    axes[0].set_title("ELBO (nats)", fontsize=10, loc="left")
    _late_range(axes[0], elbo, 0.5)
    axes[0].ticklabel_format(axis="y", useOffset=False)
    gaps = [(x, elbo[-1] - value) for x, value in zip(sent[:-1], elbo[:-1], strict=True) if value != elbo[-1]]
    below = [(x, gap) for x, gap in gaps if gap > 0]
    above = [(x, -gap) for x, gap in gaps if gap < 0]
    axes[1].plot([x for x, _ in gaps], [abs(gap) for _, gap in gaps], color=BLUE, lw=1.4)
    axes[1].plot(*_columns(below), "o", ms=3.5, color=BLUE)
    axes[1].plot(*_columns(above), "o", ms=4, mec=BLUE, mfc="white", label="above the last ELBO")
    axes[1].set_title("distance to the last ELBO (nats)", fontsize=10, loc="left")
    axes[1].set_xlim(axes[0].get_xlim())
    if gaps:
        axes[1].set_yscale("log")
    else:
        axes[1].text(0.5, 0.5, "one round only", transform=axes[1].transAxes, ha="center", color=GREY)
    if shown and heldout is not None:
        axes[2].plot(sent[: len(heldout)], heldout, color=BLUE, marker="o", ms=3.5, lw=1.4)
        axes[2].set_title("held-out log density (nats a row)", fontsize=10, loc="left")
        _late_range(axes[2], list(heldout), 0.005)
    _marks(axes[0], sent, result)
    for panel in axes:
        panel.set_xlabel("communications (messages)", fontsize=9)
        panel.grid(color="#eef0f2", lw=0.8)
        panel.tick_params(labelsize=8.5)
        _bare(panel, ("top", "right"))
        if panel.get_legend_handles_labels()[0] and (panel is not axes[1] or above):
            panel.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=DPI)


def _marks(axes: "Axes", sent: list[int], result: Result) -> None:
    points = list(zip(sent, result.history, strict=True))
    short = [(x, record.elbo) for x, record in points if record.step_fraction < 1]
    refused = [(x, record.elbo) for x, record in points if record.rejected]
    if short:
        axes.plot(*_columns(short), "v", ms=7, mec=ORANGE, mfc="none", mew=1.4, label="step shortened")
    if refused:
        axes.plot(*_columns(refused), "x", ms=7, color=RED, mew=1.6, label="an update rejected")


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
        axes.text(0.98, 0.03, text, transform=axes.transAxes, fontsize=8, color="#5b6168", ha="right")


def _ratio_axis(axes: "Axes", name: str, low: float, high: float) -> None:
    top = axes.twiny()
    top.set_xlim(low, high)
    step = next((step for step in (1, 2, 3, 5, 10) if (high - low) / math.log(2) / step < 9), 20)
    powers = range(math.ceil(low / math.log(2)), math.floor(high / math.log(2)) + 1)
    ticks = [power for power in powers if power % step == 0]
    if len(ticks) < 3:
        values = [value for value in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2) if low <= math.log(value) <= high]
        top.set_xticks([math.log(value) for value in values], [f"{value:g}" for value in values], fontsize=8.5)
    else:
        labels = [f"{2**power}" if power >= 0 else f"1/{2**-power}" for power in ticks]
        top.set_xticks([power * math.log(2) for power in ticks], labels, fontsize=8.5)
    top.set_xlabel(name, fontsize=8.5)
    _bare(top, ("right", "left"))


def _bars(result: Result) -> list[Bar]:
    def flat(posterior: Posterior, site: str) -> list[list[float]]:
        mean, sd = posterior.moments(site)
        return [part.reshape(-1).tolist() for part in (mean, sd, *interval(posterior, site))]

    bars = []
    for site, labels in element_labels(result.posterior.coordinates, result.columns).items():
        _, _, *prior = flat(result.prior, site)
        parts = zip(labels, *flat(result.posterior, site), *prior, strict=True)
        bars += [Bar(label, label == site, *values) for label, *values in parts]
    return bars


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _bare(axes: "Axes", sides: Sequence[str]) -> None:
    for side in sides:
        axes.spines[side].set_visible(False)


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _short(label: str, most: int = 34) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
