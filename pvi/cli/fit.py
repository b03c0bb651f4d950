"""``pvi fit``: files in, a folder with the posterior and its report out."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pvi.cli import settings
from pvi.cli.errors import explained
from pvi.cli.options import FitOptions, digests, model_changed, number, options_from, read_config, split
from pvi.cli.parts import NAMED, SUBSET
from pvi.cli.pipeline import run_fit
from pvi.cli.signals import terminable
from pvi.executors import EXECUTORS
from pvi.problem import GUIDES
from pvi.solvers import SOLVERS

TABLE, MODEL, ALGORITHM, RUN = "Tables", "Model", "Algorithm", "Run"
INTERRUPTED = 130
Texts = list[str] | None
LISTS = ("names", "na", "numeric", "categorical", "boolean", "drop", "latency", "learn")


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def fit(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(help="One table a client (CSV, .data, .gz, Parquet), or one with --by.")
    ] = None,
    target: Annotated[str | None, _option(TABLE, "The column to predict: a name, or a position from 0.")] = None,
    positive: Annotated[
        str | None, _option(TABLE, "Which values of the target are 1: a value, or '>0', '!=2', ...")
    ] = None,
    header: Annotated[bool, _option(TABLE, "Whether the first row names the columns.", "--header/--no-header")] = True,
    names: Annotated[Texts, _option(TABLE, "Names for the columns of files without a header, with commas.")] = None,
    separator: Annotated[
        str | None, _option(TABLE, "The separator; found out where not given. ' ' is any blanks, 'tab' a tab.")
    ] = None,
    na: Annotated[
        Texts, _option(TABLE, "Cells that mean missing, besides empty ones; repeat, or list with commas.")
    ] = None,
    numeric: Annotated[Texts, _option(TABLE, "Columns that are numbers.")] = None,
    categorical: Annotated[Texts, _option(TABLE, "Columns that are categories.")] = None,
    boolean: Annotated[Texts, _option(TABLE, "Columns with two values.")] = None,
    drop: Annotated[Texts, _option(TABLE, "Columns to leave out.")] = None,
    missing: Annotated[str, _option(TABLE, "Missing cells: error, drop (rows), mean, or indicator.")] = "error",
    by: Annotated[str | None, _option(TABLE, "The column of a single file that names the clients.")] = None,
    standardise: Annotated[str, _option(TABLE, "Standardise numeric columns, all features, or none.")] = "numeric",
    coding: Annotated[str, _option(TABLE, "Categories: against a reference level, or full.")] = "reference",
    holdout: Annotated[float, _option(TABLE, "The fraction of its rows that each client holds out.")] = 0.2,
    task: Annotated[str | None, _option(TABLE, "The target is binary or numeric; default by the model.")] = None,
    model: Annotated[
        str, _option(MODEL, "A name from `pvi models`, package.module:attribute, or file.py:attribute.")
    ] = "logistic_regression",
    argument: Annotated[Texts, _option(MODEL, "An argument of the model, such as prior_scale=2; repeat.")] = None,
    guide: Annotated[
        str | None,
        _option(MODEL, f"The posterior's form: {', '.join(GUIDES)}; if not given mean-field, or the algorithm's own."),
    ] = None,
    learn: Annotated[
        Texts, _option(MODEL, "Hyperparameters (pyro.param) to learn: names, all, or none; repeat.")
    ] = None,
    algorithm: Annotated[str, _option(ALGORITHM, "A name from `pvi algorithms`.")] = "pvi",
    alpha: Annotated[float | None, _option(ALGORITHM, "Power of power-ep and stochastic-ep in (0, 1].")] = None,
    set: Annotated[
        Texts,
        _option(
            ALGORITHM,
            "An option of the algorithm, such as zeta=1 of pfedbayes; repeat. pvi algorithms NAME lists them.",
        ),
    ] = None,
    schedule: Annotated[
        str | None, _option(ALGORITHM, f"{', '.join(NAMED)}; default by the algorithm (pvi: synchronous).")
    ] = None,
    subset_size: Annotated[int | None, _option(ALGORITHM, f"Clients in a round of {SUBSET}.")] = None,
    latency: Annotated[
        Texts,
        _option(ALGORITHM, "Simulated seconds of each client's answers: 1,1,10 in their order, or north=1,south=10."),
    ] = None,
    damping: Annotated[
        str | None,
        _option(
            ALGORITHM,
            "Size of a step in (0, 1], 1 is undamped; auto searches; decay:0.5:0.1 starts at 0.5 and shrinks as "
            "1 / (1 + 0.1 round); default by the algorithm (pvi: 0.2).",
        ),
    ] = None,
    acceleration: Annotated[str | None, _option(ALGORITHM, "anderson: mixes the last synchronous rounds.")] = None,
    memory: Annotated[int | None, _option(ALGORITHM, "Earlier rounds that anderson mixes in; default 5.")] = None,
    rounds: Annotated[
        int | None,
        _option(ALGORITHM, "Rounds; sequential: passes over all clients; default by the algorithm (pvi: 20)."),
    ] = None,
    solver: Annotated[
        str | None, _option(ALGORITHM, f"Local solver: {', '.join(SOLVERS)}; default by the model.")
    ] = None,
    executor: Annotated[
        str, _option(RUN, f"How local steps run: {', '.join(EXECUTORS)}; all give the same answers.")
    ] = "auto",
    seed: Annotated[int, _option(RUN, "Fixes the held-out rows and every random draw.")] = 0,
    device: Annotated[str, _option(RUN, "cpu, cuda, cuda:0, ...")] = "cpu",
    threads: Annotated[int, _option(RUN, "Threads for one computation; small steps are fastest with one.", min=1)] = 1,
    out: Annotated[Path, _option(RUN, "The folder for the results.")] = Path("run"),
    overwrite: Annotated[bool, _option(RUN, "Write into a folder that holds other things too.", "--overwrite")] = False,
    rows: Annotated[
        bool,
        _option(RUN, "Whether posterior.nc holds the clients' rows (ArviZ's loo needs them).", "--rows/--no-rows"),
    ] = False,
    config: Annotated[Path | None, _option(RUN, "A config.json to repeat; options given besides win.")] = None,
    debug: Annotated[bool, _option(RUN, "Show the traceback of an error.", "--debug")] = False,
) -> None:
    """Fit a model to tables that stay with their clients; write posterior, tables and pictures into a folder.

    [bold]Example:[/bold] pvi fit hospitals/*.csv --target died --positive 1 --missing indicator --out run/
    """
    console = Console()
    with explained(debug):
        given = {key: value for key, value in context.params.items() if _is_explicit(context, key)}
        options = _options(given, config, console)
        try:
            with terminable():
                played = run_fit(options, out, overwrite, rows, console)
        except KeyboardInterrupt:
            console.print("Stopped before the first round was over: nothing was written.", style="yellow")
            raise typer.Exit(INTERRUPTED) from None
        if played.interrupted:
            raise typer.Exit(INTERRUPTED)


def _options(given: dict[str, Any], config: Path | None, console: Console) -> FitOptions:
    known = {field.name for field in fields(FitOptions)}
    values = {key: value for key, value in given.items() if key in known}
    values |= {key: split(values[key]) for key in LISTS if key in values}
    if "files" in values:
        values["files"] = tuple(str(path) for path in values["files"])
    if values.get("separator") in ("\\t", "tab"):
        values["separator"] = "\t"
    for key in ("argument", "set"):
        if key in values:
            values[key] = tuple(values[key])
    if "damping" in values:
        values["damping"] = number(values["damping"])
    if config is None:
        if not values.get("files"):
            raise ValueError("no files: name one table for each client, or repeat a run with --config run/config.json")
        if "target" not in values:
            raise ValueError("which column is to be predicted? Name it with --target")
        return FitOptions(**values)
    if config.is_dir():
        config = config / "config.json"
    found = read_config(config)
    options = merged(options_from(found, config), values)
    before = found.get("files", {})
    for path, digest in digests(options.files).items():
        if before.get(path, digest) != digest:
            console.print(f"Note: {path} has changed since the run in {config}.", style="yellow", markup=False)
    changed = model_changed(found, options.model, config) if "model" not in values else ""
    if changed:
        console.print(f"Note: {changed}", style="yellow", markup=False)
    return options


def merged(before: FitOptions, given: dict[str, Any]) -> FitOptions:
    """Options with those given besides; of the algorithm's own (``--set``) each by itself, of the same algorithm."""
    if given.get("algorithm", before.algorithm) == before.algorithm:
        both = settings.named(before.set) | settings.named(given.get("set", ()))
        return replace(before, **given | {"set": tuple(both.values())})
    return replace(before, **{"set": ()} | given)


def _is_explicit(context: typer.Context, name: str) -> bool:
    # Compared by name: newer versions of typer have a click of their own, older ones import it.
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")
