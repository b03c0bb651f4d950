"""From options to a run's folder: tables, rounds, report. ``pvi fit`` and ``pvi demo`` are this and little else."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pvi import run
from pvi.cli import live, output, parts, screen
from pvi.cli.checks import check, check_columns
from pvi.cli.errors import learning_explained
from pvi.cli.options import FitOptions, config, digests, model_digest
from pvi.cli.words import noise_note
from pvi.data import Tables, read_tables
from pvi.diagnostics import heldout_log_density
from pvi.diagnostics.personal import with_personal
from pvi.programs.batch import Batch
from pvi.result import Result

INTERRUPTED = 130
"""The exit code of a command stopped from the keyboard."""


class Played(NamedTuple):
    """A result, the held-out log densities after each round, and whether the user stopped it early.

    ``heldout`` are by the shared posterior (and private latents), ``personal`` by personal ones, empty without these.
    """

    result: Result
    heldout: list[float]
    interrupted: bool
    personal: list[float] = []  # noqa: RUF012 - a record, never changed


def load_tables(options: FitOptions) -> Tables:
    """The clients' tables as the options say; raises :class:`pvi.data.TableError`."""
    return read_tables(
        options.files[0] if options.by is not None and len(options.files) == 1 else list(options.files),
        by=options.by,
        target=options.target,
        positive=options.positive,
        task=options.table_task,  # type: ignore[arg-type]
        header=options.header,
        separator=options.separator,
        names=options.names,
        na=options.na or ("",),
        numeric=options.numeric,
        categorical=options.categorical,
        boolean=options.boolean,
        drop=options.drop,
        missing=options.missing,  # type: ignore[arg-type]
        standardise=options.standardise,  # type: ignore[arg-type]
        coding=options.coding,  # type: ignore[arg-type]
        holdout=options.holdout,
        seed=options.seed,
    )


def play(options: FitOptions, tables: Tables, console: Console) -> Played:
    """All rounds, or as many as there were before Ctrl-C. Raises ``KeyboardInterrupt`` where there were none."""
    arguments = options.model_arguments()
    rounds = parts.rounds(options)
    with learning_explained(options):
        found = run.fit_rounds(
            options.model,
            with_arguments(tables.training, arguments),
            options.guide,
            parts.algorithm(options),
            parts.schedule(options),
            parts.damping(options),
            rounds,
            options.local_solver(),
            options.executor,
            options.seed,
            device(options.device),
            threads=options.threads,
            acceleration=parts.acceleration(options),
            learn=parts.learn(options),
        )
    holdout = with_arguments(tables.holdout, arguments)
    # As many as for the table at the end, so that the last round's number is the table's.
    draws = output.draws_for(holdout)
    heldout: list[float] = []
    personal: list[float] = []
    interrupted, result = False, None
    try:
        with live.shown(console, rounds, options) as show:
            for bare in found:
                result = replace(bare, columns=tables.columns)
                heldout.append(heldout_log_density(result, holdout, draws))
                if result.personal:
                    personal.append(heldout_log_density(with_personal(result), holdout, draws))
                show(result.history[-1], heldout[-1], personal[-1] if personal else math.nan)
    except KeyboardInterrupt:
        if result is None:
            raise
        interrupted = True
    assert result is not None  # there is at least one round
    for curve in (heldout, personal) if personal else (heldout,):
        curve += [math.nan] * (len(result.history) - len(curve))
    return Played(result, heldout, interrupted, personal)


def with_arguments(
    parts: Mapping[str, tuple[torch.Tensor, torch.Tensor]], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Clients' (x, y) together with the model's other arguments, the same for all; clients without rows left out."""
    return {client: Batch(pair, dict(arguments)) for client, pair in parts.items() if len(pair[1])}


def run_fit(options: FitOptions, folder: Path, overwrite: bool, rows: bool, console: Console) -> Played:
    """Everything that ``pvi fit`` does, in order; raises the errors of tables, models and folders.

    Stopped after the rounds it says what is in the folder and raises ``typer.Exit``.
    ``rows``: whether the netCDF file may hold the clients' rows.
    """
    check(options)
    # Of the file as it is run: it may be edited while the rounds go on.
    model_sha256 = model_digest(options.model)
    device(options.device)
    tables = load_tables(options)
    check_columns(options, tables.schema)
    replaces = output.check_folder(folder, overwrite)
    screen.show_tables(tables, console)
    noise = noise_note(options, tables)
    if noise:
        console.print(f"Note: {noise}\n", style="yellow", highlight=False, markup=False)
    played = play(options, tables, console)
    holdout = with_arguments(tables.holdout, options.model_arguments())
    try:
        found = screen.report(options, played.result, holdout, played.interrupted, console)
    except KeyboardInterrupt:
        kept = f"; the earlier run in {folder} is as it was" if replaces else ""
        _stop(f"Stopped after the rounds, before any of their results was written{kept}.", console)
    extra: dict[str, Any] = {"interrupted_after_rounds": len(played.heldout)} if played.interrupted else {}
    if model_sha256 is not None:
        extra["model_sha256"] = model_sha256
    settings = config(options, tables.schema.to_dict(), digests(options.files), **extra)
    curves = {"global": played.heldout, "personal": played.personal}
    written: list[output.Written] = []
    try:
        for file in output.write(folder, played.result, settings, curves, found, rows):
            written.append(file)
    except KeyboardInterrupt:
        complete = [file.name for file in written if not file.why_not]
        output.clear(folder, complete)
        there = f"complete: {', '.join(complete)}; the others are missing" if complete else "none of them is complete"
        lost = " The earlier run there was replaced." if replaces else ""
        _stop(f"Stopped after the rounds, while their results were written to {folder}/; {there}.{lost}", console)
    replaced = " (the earlier run there was replaced)" if replaces else ""
    console.print(f"\nWritten to {folder}/{replaced}:", style="bold", highlight=False, markup=False)
    files = Table.grid(padding=(0, 2))
    for name, what in output.WRITTEN.items():
        if (folder / name).exists():
            held = " Holds the clients' rows." if name == output.NETCDF and rows else ""
            files.add_row(Text(f"  {name}", style="cyan"), Text(what + held))
    console.print(files)
    for name, why_not in written:
        if why_not:
            console.print(f"{name} was left out: {why_not}.", style="yellow", highlight=False, markup=False)
    return played


def _stop(said: str, console: Console) -> NoReturn:
    """End a run that was stopped after its rounds, with what is true of its folder."""
    console.print(said, style="yellow", highlight=False, markup=False)
    raise typer.Exit(INTERRUPTED)


def device(name: str) -> torch.device:
    """The device of a name, tried out; raises ``ValueError`` where it cannot compute in double precision."""
    try:
        device = torch.device(name)
        torch.ones(2, dtype=torch.float64, device=device).sum().item()
    # torch raises AssertionError, RuntimeError, NotImplementedError or TypeError, each for another kind of absence.
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"--device {name!r} cannot be used here ({reason}); try cpu, cuda or cuda:0") from error
    return device
