"""The forest plot: coefficients with their intervals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pvi.diagnostics.labels import element_labels
from pvi.diagnostics.marginals import interval
from pvi.diagnostics.ratios import ratio_name
from pvi.diagnostics.style import BLUE, DARK, DPI, FAINT, GREY, GRID, ORANGE, SMALL, hide, new_figure, short
from pvi.posterior import Posterior
from pvi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 60
"""Coefficients in one picture; more cannot be read."""
MOST_CLIENTS = 6
"""Clients with intervals of their own; of more the means are shown."""
DECADES = 300
"""Powers of ten, up and down, that an axis of ratios shows; a float ends a little later."""
REACH = 1e300
"""Ends of intervals beyond it cannot be drawn: the width of the axis is no float any more."""
COLOURS = (ORANGE, "#2f7d5b", "#8452a3", "#b3261e", "#2a9aa8", "#7a6a2f")


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

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.lower * self.upper > 0


def forest(result: Result, path: str | Path, sort: bool = True) -> None:
    """Posterior means and 95 % intervals by coefficient, the prior's intervals behind them, as a picture file.

    ``sort`` puts the largest mean on top and scalars (the intercept) last; else the order is that of the table. Of
    more than 60 coefficients those with the largest |mean| / sd are shown. Logistic and Poisson regressions have a
    second axis with ratios. Of a result with personal posteriors each client's interval lies under the global one;
    of more than six clients the means alone, in one line. Raises ``ValueError``, and writes nothing, where a mean or an
    interval is not finite or beyond 1e300.
    """
    bars = _bars(result)
    personal = {client: {bar.label: bar for bar in _bars(result.of_client(client))} for client in result.personal}
    _check(bars, "")
    for client, own in personal.items():
        _check(own.values(), f" of client {client!r}")
    total = len(bars)
    if total > MOST:
        found = {bar.label: [bar, *(own[bar.label] for own in personal.values())] for bar in bars}
        clearest = {label: max(abs(bar.mean) / max(bar.sd, 1e-300) for bar in own) for label, own in found.items()}
        kept = sorted(clearest, key=lambda label: -clearest[label])[:MOST]
        bars = [bar for bar in bars if bar.label in kept]
    if sort:
        bars = sorted(bars, key=lambda bar: (bar.is_scalar, -bar.mean))
    lines = 1 + (len(personal) if len(personal) <= MOST_CLIENTS else 1)
    figure = new_figure(7.0, 1.3 + (0.4 if personal else 0) + max(0.23, 0.08 + 0.11 * lines) * len(bars))
    axes = figure.subplots()
    for place, bar in enumerate(bars):
        height = 0.9 if personal else 0.4
        axes.barh(place, bar.prior_upper - bar.prior_lower, height, bar.prior_lower, color=FAINT, zorder=1)
        if personal:
            _draw(axes, bar, place - 0.4 + 0.4 / lines, BLUE)
        else:
            _draw(axes, bar, place, BLUE if bar.is_clear else GREY)
    shown = bars + [own[bar.label] for own in personal.values() for bar in bars]
    if personal:
        _draw_clients(axes, bars, personal, lines)
        figure.legend(loc="outside upper center", ncols=5 if lines < 6 else 4, fontsize=SMALL, frameon=False)
    low, high = min(0.0, *(bar.lower for bar in shown)), max(0.0, *(bar.upper for bar in shown))
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
        whose = ", of the global or a personal posterior" if personal else ""
        figure.suptitle(f"the {MOST} of {total} coefficients with the largest |mean| / sd{whose}", fontsize=9)
    figure.savefig(path, dpi=DPI)


def _check(bars: Iterable[Bar], whose: str) -> None:
    for bar in bars:
        if not all(abs(value) <= REACH for value in (bar.mean, bar.lower, bar.upper)):  # NaN is not either
            raise ValueError(
                f"coefficient {bar.label!r}{whose} cannot be drawn (mean {bar.mean:.3g}, sd {bar.sd:.3g}, 95 % "
                f"interval {bar.lower:.3g} to {bar.upper:.3g})"
            )


def _draw(axes: "Axes", bar: Bar, place: float, colour: str, width: float = 1.8) -> None:
    axes.plot([bar.lower, bar.upper], [place, place], color=colour, lw=width, solid_capstyle="butt", zorder=3)
    axes.plot([bar.mean], [place], "o", ms=2.5 * width, mec=colour, mfc=colour if bar.is_clear else "white", zorder=4)


def _draw_clients(axes: "Axes", bars: list[Bar], personal: Mapping[str, Mapping[str, Bar]], lines: int) -> None:
    """The clients' bars under the global ones, in the lines that are left of each coefficient."""
    step, colours = 0.8 / lines, dict(zip(personal, COLOURS, strict=False))
    axes.plot([], [], color=BLUE, marker="o", lw=1.8, ms=4.5, label="global")
    for place, bar in enumerate(bars):
        first = place - 0.4 + step / 2
        if len(personal) > MOST_CLIENTS:
            means = [own[bar.label].mean for own in personal.values()]
            label = f"means of {len(personal)} clients" if not place else None
            axes.plot(means, [first + step] * len(means), "o", ms=3, color=ORANGE, alpha=0.5, mew=0, label=label)
            continue
        for index, (client, own) in enumerate(personal.items(), 1):
            _draw(axes, own[bar.label], first + index * step, colours[client], 1.3)
    if len(personal) <= MOST_CLIENTS:
        for client, colour in colours.items():
            axes.plot([], [], color=colour, marker="o", lw=1.3, ms=3.3, label=short(client, 20))


def _ratio_axis(axes: "Axes", name: str, low: float, high: float) -> None:
    top = axes.twiny()
    top.set_xlim(low, high)
    ticks = _ratio_ticks(low, high)
    top.set_xticks(list(ticks), list(ticks.values()), fontsize=SMALL)
    top.set_xlabel(name if ticks else f"no axis of {name}s: they go beyond 1e±{DECADES}", fontsize=SMALL)
    hide(top, ("right", "left"))


def _ratio_ticks(low: float, high: float) -> dict[float, str]:
    """Round ratios between exp(low) and exp(high) by their logarithms: few, and short, whatever the range.

    Plain numbers on a narrow axis, then powers of two, then of ten; empty beyond what a float holds, since there are no
    ratios to be read there.
    """
    if max(-low, high) > DECADES * math.log(10):
        return {}
    powers = _multiples(low, high, math.log(2), (1, 2, 3))
    if not powers:
        tens = _multiples(low, high, math.log(10), (1, 2, 5, 10, 20, 50, 100))
        return {power * math.log(10): f"1e{power}" if power else "1" for power in tens}
    if len(powers) < 3:
        values = [value for value in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2) if low <= math.log(value) <= high]
        return {math.log(value): f"{value:g}" for value in values}
    return {power * math.log(2): f"{2**power}" if power >= 0 else f"1/{2**-power}" for power in powers}


def _multiples(low: float, high: float, unit: float, steps: Sequence[int]) -> list[int]:
    """The multiples of the first step that leaves fewer than nine between the ends, in units; none of a wider range."""
    step = next((step for step in steps if (high - low) / unit / step < 9), None)
    if step is None:
        return []
    return [step * k for k in range(math.ceil(low / unit / step), math.floor(high / unit / step) + 1)]


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
