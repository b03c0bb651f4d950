"""The forest plot: coefficients with their intervals."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pvi.diagnostics.labels import element_labels
from pvi.diagnostics.marginals import interval
from pvi.diagnostics.ratios import ratio_name
from pvi.diagnostics.style import BLUE, DARK, DPI, FAINT, GREY, GRID, SMALL, hide, new_figure, short
from pvi.posterior import Posterior
from pvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 60
"""Coefficients in one picture; more cannot be read."""


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
    figure = new_figure(7.0, 1.3 + 0.23 * len(bars))
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
    axes.axvline(0, color=DARK, lw=0.9, zorder=2)
    axes.set_yticks(range(len(bars)), [short(bar.label) for bar in bars], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, lw=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=SMALL)
    figure.supxlabel(
        "coefficient: posterior mean and 95 % interval (open: includes zero; grey band: prior)", fontsize=SMALL
    )
    hide(axes, ("top", "right", "left"))
    ratio = ratio_name(result)
    if ratio:
        _ratio_axis(axes, ratio.replace("_", " "), low - margin, high + margin)
    if total > MOST:
        figure.suptitle(f"the {MOST} of {total} coefficients with the largest |mean| / sd", fontsize=9)
    figure.savefig(path, dpi=DPI)


def _ratio_axis(axes: "Axes", name: str, low: float, high: float) -> None:
    top = axes.twiny()
    top.set_xlim(low, high)
    step = next((step for step in (1, 2, 3, 5, 10) if (high - low) / math.log(2) / step < 9), 20)
    powers = range(math.ceil(low / math.log(2)), math.floor(high / math.log(2)) + 1)
    ticks = [power for power in powers if power % step == 0]
    if len(ticks) < 3:
        values = [value for value in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2) if low <= math.log(value) <= high]
        top.set_xticks([math.log(value) for value in values], [f"{value:g}" for value in values], fontsize=SMALL)
    else:
        labels = [f"{2**power}" if power >= 0 else f"1/{2**-power}" for power in ticks]
        top.set_xticks([power * math.log(2) for power in ticks], labels, fontsize=SMALL)
    top.set_xlabel(name, fontsize=SMALL)
    hide(top, ("right", "left"))


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
