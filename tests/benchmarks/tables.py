"""The tables in Markdown, and their place in docs/benchmarks.md."""

import platform
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.adult_run import Spent
from benchmarks.compare import ALL, Compared, Effort
from benchmarks.handwritten import AUTOGRAD, BY_HAND
from benchmarks.measure import Spread
from benchmarks.measure import spread as spread_of
from benchmarks.memory import Peak
from benchmarks.ours import CAPTURED, COMPILED, LOOP
from benchmarks.photo_table import HEAD, PhotoRun
from benchmarks.scaling import Growth
from benchmarks.stock import NAME as STOCK
from benchmarks.targets import Verdict

BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
WIDTH = 128
"""Of the document's lines of prose."""


class Fit(NamedTuple):
    """One fit on both devices: seconds, and the largest difference of means in posterior standard deviations."""

    name: str
    cpu: float
    device: float
    apart: float


class Report(NamedTuple):
    """Everything that a run measured."""

    device: str
    effort: Effort
    parameters: int
    compared: list[Compared]
    growths: list[Growth]
    verdicts: list[Verdict]
    peaks: list[Peak]
    fits: list[Fit]
    adult: dict[str, list[Spent]]
    adult_rounds: int
    photos: list[PhotoRun]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown."""
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows), ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """Three digits, thousands whole."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def spread(found: Spread) -> str:
    """The median with the smallest and the largest."""
    if found.low == found.high:
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)} to {number(found.high)})"


def costs(compared: Sequence[Compared]) -> list[str]:
    """Microseconds a client-step."""
    return table(
        ["µs a client-step", *ALL], [[one.case, *[spread(one.timings.cost(name)) for name in ALL]] for one in compared]
    )


RATIOS = ((CAPTURED, AUTOGRAD), (COMPILED, AUTOGRAD), (COMPILED, BY_HAND), (STOCK, COMPILED), (LOOP, COMPILED))


def ratios(compared: Sequence[Compared]) -> list[str]:
    """Of costs, repeat by repeat."""
    return table(
        ["ratio", *[f"{above} / {below}" for above, below in RATIOS]],
        [[one.case, *[spread(one.timings.ratio(*pair)) for pair in RATIOS]] for one in compared],
    )


def setups(compared: Sequence[Compared]) -> list[str]:
    """Seconds before the first step."""
    chosen = [name for name in ALL if any(one.timings.setup[name] >= 0.05 for one in compared)]
    return table(
        ["seconds of set-up", *chosen],
        [[one.case, *[f"{one.timings.setup[name]:.1f}" for name in chosen]] for one in compared],
    )


def growth(found: Growth) -> list[str]:
    """Cost by size, and the fitted exponent."""
    rows = [[row.contender, *map(number, row.costs), f"{row.exponent:.2f}"] for row in found.rows]
    return table([found.what, *[f"{size:,}" for size in found.sizes], "exponent"], rows)


def bounds(verdicts: Sequence[Verdict]) -> list[str]:
    """Measured against what was asked for."""
    rows = [
        [one.what, spread(one.found), f"{'≤' if one.at_most else '≥'} {number(one.bound)}", "yes" if one.met else "no"]
        for one in verdicts
    ]
    return table(["what", "measured", "target", "met"], rows)


def memory(peaks: Sequence[Peak]) -> list[str]:
    """One round of many clients, a process each."""
    rows = [
        [
            f"{one.number:,}",
            *[f"{value:.2f}" for value in (one.peak, one.data)],
            *[number(value) for value in (one.start, one.clients, one.server)],
        ]
        for one in peaks
    ]
    return table(["clients", "peak GB", "of it rows", "start s", "clients s", "server s"], rows)


def section(report: Report) -> list[str]:
    """All of the tables with what one must know to read them."""
    where = f"{report.device}, torch {torch.__version__}, Python {platform.python_version()}"
    clock = "the clock's time" if report.device != "CPU" else "processor time"
    lines = [f"One thread, {where}, single precision.", ""]
    if report.compared:
        lines = [
            f"{lines[0]} Microseconds a client-step are {clock}, medians of {report.effort.repeats} repeats in turns "
            "(smallest to largest); ratios are taken repeat by repeat.",
            "",
            *costs(report.compared),
            *ratios(report.compared),
            *bounds(report.verdicts),
            "Set-up is capturing the step and compiling it, once a run (the first compilation loads the compiler); for "
            "stock Pyro, the first step of every client.",
            "",
            *setups(report.compared),
        ]
    for found in report.growths:
        lines += growth(found)
    if report.peaks:
        lines += [
            f"One synchronous round of SVI, 20 steps, {report.parameters:,} shared parameters, mean field, five rows a "
            "client, a process each. Start is looking at the model at every client; the clients' seconds are their "
            "solves and their terms of the free energy; the server's all else of the round.",
            "",
        ]
        lines += memory(report.peaks)
    if report.fits:
        lines += table(
            ["fit", "CPU s", f"{report.device} s", "means apart at most, sd"],
            [[one.name, f"{one.cpu:.2f}", f"{one.device:.2f}", f"{one.apart:.1e}"] for one in report.fits],
        )
    if report.photos:
        lines += table(HEAD, [one.cells() for one in report.photos])
    if report.adult:
        lines += table(
            [f"Adult, split B, {report.adult_rounds} rounds, exact Newton", "processor s", "clock s"],
            [
                [name, *[spread(spread_of(values)) for values in zip(*spent, strict=True)][::-1]]
                for name, spent in report.adult.items()
            ],
        )
    return lines


def write(path: Path, lines: Sequence[str]) -> None:
    """Put the lines between the markers of a document, at its end where it has none yet."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n## Speed\n\n{BEGIN}\n{END}\n".lstrip()
    laid_out = [line if line.startswith("|") else textwrap.fill(line, WIDTH) for line in lines]
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{chr(10).join(laid_out).rstrip()}\n\n{END}{after}", encoding="utf-8")
