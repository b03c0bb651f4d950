"""The run of an experiment: progress on the screen, every finished part on the disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from pvi.cli import pipeline
from pvi.cli.experiment_screen import show, shown
from pvi.diagnostics import plot_partition
from pvi.experiments import folder as pages
from pvi.experiments.page import draw_reliability, write_report
from pvi.experiments.play import Curves, frame, play
from pvi.experiments.protocol import Experiment, Illustrated, Setting

PRESETS = ("full", "quick")


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


@dataclass
class Records:
    """What a run has so far, in its folder and here; ``fresh`` until it has written anything."""

    experiment: Experiment
    folder: Path
    command: str
    curves: pd.DataFrame
    digests: dict[int, str]
    notes: list[str]
    fresh: bool
    reference: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """``config.json`` as it is now."""
        return pages.config(self.experiment, self.command, self.digests)

    def begin(self, seed: int, setting: Setting) -> list[str]:
        """A seed's problem is known; the notes that are new. Raises ``ValueError`` for other rows than before."""
        if self.fresh:  # not before everything was checked: a slip of the pen must not cost an earlier run's results
            pages.clear(self.folder)
            self.fresh = False
        best = self.experiment.reference(setting)
        self.reference = None if best is None else best.name
        digest = pages.digest(setting)
        if self.digests.setdefault(seed, digest) != digest:
            raise ValueError(
                f"{self.folder}: the rows of seed {seed} are not those of the run there; choose another --out"
            )
        pages.write_config(self.folder, self.settings)
        if seed == 0 and setting.parts:
            plot_partition(setting.parts, setting.labels, self.folder / pages.PARTITION)
        new = [note for note in setting.notes if note not in self.notes]
        self.notes += new
        return new

    def add(self, part: Curves) -> None:
        """A method came to its end. The curves go last: what they hold is not played again."""
        if part.seed == 0:
            draw_reliability(self.folder, part)
            if isinstance(self.experiment, Illustrated):
                self.experiment.illustrate(self.folder, part.result, part.setting, part.method)
        self.curves = pd.concat([self.curves, frame(part.records)], ignore_index=True)
        pages.write_curves(self.folder, self.curves)

    @property
    def done(self) -> set[tuple[int, str]]:
        """The seeds and methods that need not be played."""
        return set(zip(self.curves["seed"], self.curves["method"], strict=True)) if len(self.curves) else set()


def run(kind: Any, given: dict[str, Any], request: Request, console: Console) -> bool:
    """Play an experiment into its folder; whether it came to its end.

    Raises ``ValueError`` for bad options, for a folder that holds other things, and where a run is to go on whose
    options or rows were others.
    """
    records = prepare(kind, given, request)
    console.print(records.experiment.title, style="bold", highlight=False, markup=False)
    changed = ", ".join(records.settings["scaled_from_full"])
    if changed:
        console.print(f"Differs from the full size: {changed}.", highlight=False, markup=False)

    def begun(seed: int, setting: Setting) -> None:
        for note in records.begin(seed, setting):
            console.print(f"Note: {note}", style="yellow", highlight=False, markup=False)

    complete, only = True, request.only or ()
    try:
        with shown(console) as report:
            for part in play(records.experiment, request.data_dir, only, records.done, report, request.device,
                             request.threads, begun=begun):  # fmt: skip
                records.add(part)
    except KeyboardInterrupt:
        complete = False
        if not len(records.curves):
            console.print("Stopped before the first method was done: nothing to show.", style="yellow")
            return False
    write_report(records.folder, records.experiment, records.curves, records.settings, tuple(records.notes),
                 records.reference, complete)  # fmt: skip
    show(records.experiment, records.curves, console)
    written = ", ".join(pages.WRITTEN)
    console.print(f"Written to {records.folder}/: {written}", style="bold", highlight=False, markup=False)
    return complete


def prepare(kind: Any, given: dict[str, Any], request: Request) -> Records:
    """Check what can be checked before the data are read; with ``resume`` what an earlier run has done."""
    if request.preset not in PRESETS:
        raise ValueError(f"preset is {' or '.join(PRESETS)}, not {request.preset!r}")
    pipeline.device(request.device)
    experiment: Experiment = pages.preset(kind, request.preset == "quick", given)
    folder = request.out or Path(f"experiment-{kind.NAME}")
    if not request.resume:
        check_folder(folder, request.overwrite)
        return Records(experiment, folder, request.command, pd.DataFrame(), {}, [], fresh=True)
    earlier = pages.read_done(folder, pages.config(experiment, request.command, {}))
    notes = []
    if earlier.others:
        notes.append(f"Begun under other versions ({earlier.others}) and resumed under those of {pages.CONFIG}.")
    return Records(experiment, folder, earlier.command, earlier.curves, earlier.digests, notes, fresh=False)


def check_folder(folder: Path, overwrite: bool) -> None:
    """Raises ``ValueError`` where a folder holds something that is no experiment's."""
    present = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    own = pages.holds_a_run(folder)
    others = [name for name in present if not (own and pages.is_own(name))]
    if others and not overwrite:
        raise ValueError(f"{folder} holds {', '.join(sorted(others)[:5])}: choose another --out, or say --overwrite")
