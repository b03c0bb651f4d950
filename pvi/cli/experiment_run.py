"""The run of an experiment: progress on the screen, every finished part on the disk."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pvi.cli import pipeline
from pvi.cli.live import warnings_on
from pvi.diagnostics import plot_partition
from pvi.experiments import folder as pages
from pvi.experiments.claims import answer, answered
from pvi.experiments.page import draw_reliability, write_report
from pvi.experiments.play import Progress as Stand
from pvi.experiments.play import Report, frame, play
from pvi.experiments.protocol import Experiment, Setting
from pvi.experiments.summary import table

PRESETS = ("full", "quick")
PATIENCE = 20.0
"""Seconds without a word, where there is no bar."""


class Request(NamedTuple):
    """What the command line says beside an experiment's own options."""

    command: str
    preset: str = "full"
    data_dir: Path | None = None
    out: Path | None = None
    only: list[str] | None = None
    resume: bool = False
    overwrite: bool = False
    device: str = "cpu"
    threads: int = 1


def run(kind: Any, given: dict[str, Any], request: Request, console: Console) -> bool:
    """Play an experiment into its folder; whether it came to its end.

    Raises ``ValueError`` for bad options, for a folder that holds other things, and where a run is to go on whose
    options or rows were others.
    """
    if request.preset not in PRESETS:
        raise ValueError(f"preset is {' or '.join(PRESETS)}, not {request.preset!r}")
    pipeline.device(request.device)  # before anything is written
    experiment: Experiment = pages.preset(kind, request.preset == "quick", given)
    folder = request.out or Path(f"experiment-{kind.NAME}")
    before, digests, notes, command = pd.DataFrame(), dict[int, str](), list[str](), request.command
    if request.resume:
        earlier = pages.read_done(folder, pages.config(experiment, command, {}))
        before, digests, command = earlier.curves, earlier.digests, earlier.command
        if earlier.others:
            notes.append(f"Begun under other versions ({earlier.others}) and resumed under those of {pages.CONFIG}.")
    else:
        check_folder(folder, request.overwrite)
    settings = pages.config(experiment, command, digests)
    console.print(experiment.title, style="bold", highlight=False, markup=False)
    if settings["scaled_from_full"]:
        said = ", ".join(settings["scaled_from_full"])
        console.print(f"Differs from the full size: {said}.", highlight=False, markup=False)
    curves, fresh = before, not request.resume
    reference: str | None = None

    def begun(seed: int, setting: Setting) -> None:
        nonlocal reference, fresh
        if fresh:  # not before everything was checked: a slip of the pen must not cost an earlier run's results
            pages.clear(folder)
            fresh = False
        best = experiment.reference(setting)
        reference = None if best is None else best.name
        digest = pages.digest(setting)
        if digests.setdefault(seed, digest) != digest:
            raise ValueError(f"{folder}: the rows of seed {seed} are not those of the run there; choose another --out")
        pages.write_config(folder, pages.config(experiment, command, digests))
        if seed == 0 and setting.parts:
            plot_partition(setting.parts, setting.labels, folder / pages.PARTITION)
        for note in setting.notes:
            if note not in notes:
                notes.append(note)
                console.print(f"Note: {note}", style="yellow", highlight=False, markup=False)

    done = set(zip(before["seed"], before["method"], strict=True)) if len(before) else set()
    complete = True
    try:
        with shown(console) as report:
            parts = play(
                experiment,
                request.data_dir,
                request.only or (),
                done,
                report,
                request.device,
                request.threads,
                None,
                begun,
            )
            for part in parts:
                curves = pd.concat([curves, frame(part.records)], ignore_index=True)
                if part.seed == 0:
                    draw_reliability(folder, part)
                pages.write_curves(folder, curves)
    except KeyboardInterrupt:
        complete = False
        if not len(curves):
            console.print("Stopped before the first method was done: nothing to show.", style="yellow")
            return False
    settings = pages.config(experiment, command, digests)
    write_report(folder, experiment, curves, settings, tuple(notes), reference, complete)
    show(experiment, curves, console)
    console.print(f"Written to {folder}/: {', '.join(pages.WRITTEN)}", style="bold", highlight=False, markup=False)
    return complete


def check_folder(folder: Path, overwrite: bool) -> None:
    """Raises ``ValueError`` where a folder holds something that is no experiment's."""
    present = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    own = pages.holds_a_run(folder)
    others = [name for name in present if not (own and pages.is_own(name))]
    if others and not overwrite:
        raise ValueError(f"{folder} holds {', '.join(sorted(others)[:5])}: choose another --out, or say --overwrite")


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
    parts = [f"seed {stand.seed}", f"{stand.method}{going}", f"ELBO {found['elbo']:.2f}"]
    if "elbo_gap" in found:
        parts.append(f"gap {found['elbo_gap']:.3g}")
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
