"""An experiment on the screen: rounds as they happen, the table at the end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pvi.cli.live import warnings_on
from pvi.experiments.claims import answer, answered
from pvi.experiments.play import Progress as Stand
from pvi.experiments.play import Report
from pvi.experiments.protocol import Experiment
from pvi.experiments.summary import table
from pvi.progress import nats

PATIENCE = 20.0
"""Seconds without a word, where there is no bar."""


@contextmanager
def shown(console: Console) -> Iterator[Report]:
    """Rounds as they happen: a bar a method on a terminal; elsewhere a line a method, and one now and then."""
    with warnings_on(console):
        if not console.is_terminal:
            said = time.monotonic()

            def say(stand: Stand) -> None:
                nonlocal said
                if stand.round == stand.rounds or time.monotonic() - said > PATIENCE:
                    said = time.monotonic()
                    console.print(line(stand), highlight=False, markup=False)

            yield say
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
            tasks: dict[tuple[int, str], Any] = {}

            def move(stand: Stand) -> None:
                key = (stand.seed, stand.method)
                if key not in tasks:
                    tasks[key] = bar.add_task("", total=stand.rounds)
                bar.update(tasks[key], completed=stand.round, description=line(stand))

            yield move


def line(stand: Stand) -> str:
    """One method's stand in a line."""
    found = stand.measured
    going = "" if stand.round == stand.rounds else f" (round {stand.round} of {stand.rounds})"
    parts = [f"seed {stand.seed}", f"{stand.method}{going}", f"{stand.elbo_name} {nats(found['elbo'], 2)}"]
    if "elbo_gap" in found:
        parts.append(f"gap {found['elbo_gap']:.3g}")
    parts += [f"{name.upper()} {found[f'{name}_at_mean']:.2f} %" for name in ("pm", "gm") if f"{name}_at_mean" in found]
    parts += [f"{name.upper()} {found[name]:.2f} %" for name in ("ga", "la") if name in found]
    if "log_likelihood" in found:
        parts.append(f"test {found['log_likelihood']:.4f}")
    return "  ".join([*parts, f"{found['seconds']:.1f} s"])


def show(experiment: Experiment, curves: pd.DataFrame, console: Console) -> None:
    """The table, and what the paper says."""
    found = table(curves, experiment.metrics, intervals=False).drop(columns=["seeds", "rounds"])
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    grid.add_column("method", no_wrap=True)
    # Heads wrap between words; numbers stay whole, and columns that do not fit are in the file.
    widths = {name: max(len(str(value)) for value in (*found[name], *str(name).split())) for name in found.columns}
    room = console.width - max(len(str(name)) for name in found.index) - 2
    fitting = [name for name in found.columns if name != "seconds"]
    while fitting and sum(widths[name] + 3 for name in (*fitting, "seconds")) > room:
        fitting.pop()
    for name in (*fitting, "seconds"):
        grid.add_column(str(name), justify="right", width=widths[name], no_wrap=False)
    for method, row in found[[*fitting, "seconds"]].iterrows():
        grid.add_row(str(method), *[str(value) for value in row])
    console.print(grid)
    answers = answered(experiment.claims(), curves)
    if answers:
        console.print("Beside the paper (a difference is method less reference, in the mean over the seeds):")
    for text, said in answers.items():
        console.print(f"  {text}", highlight=False, markup=False)
        for verdict in said:
            console.print(f"    {answer(verdict)}: {verdict.measured}", highlight=False, markup=False)
