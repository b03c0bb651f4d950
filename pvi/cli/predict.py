"""``pvi predict``: a run's folder and a new table to predictions with their uncertainty."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from rich.console import Console

from pvi.checkpoint import CheckpointError, load
from pvi.cli.errors import explained
from pvi.cli.options import FitOptions, model_changed, options_from, read_config
from pvi.cli.output import MOST_NUMBERS, draws_for
from pvi.cli.words import point_estimate
from pvi.data import Schema, read_frame
from pvi.diagnostics.personal import with_personal
from pvi.programs.batch import Batch
from pvi.report import heldout_metrics, render_metrics
from pvi.result import Result


def predict(
    run: Annotated[Path, typer.Argument(help="The folder that pvi fit wrote.")],
    file: Annotated[Path, typer.Argument(help="A table with the columns of the training tables; the target may lack.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write the predictions (CSV); else they are printed.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Posterior draws.", min=2)] = 1000,
    seed: Annotated[int, typer.Option(help="Fixes the draws.")] = 0,
    client: Annotated[
        str | None,
        typer.Option(
            help="Whose rows these are, where clients have latents or posteriors of their own; else a new client's."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model, where it is no longer found under its name.")] = None,
    allow_unseen: Annotated[
        bool, typer.Option("--allow-unseen", help="Accept categories and gaps that training did not have.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Predict each row of a table: probability (or mean), its posterior sd, and a 95 % interval.

    The interval is that of the probability (or mean) itself, not of single outcomes. Where the table has the target,
    it is also said how well the predictions did.
    """
    messages = Console(stderr=out is None)
    with explained(debug):
        torch.set_num_threads(1)
        result, schema, options, changed = open_run(run, model)
        if changed:
            messages.print(f"Note: {changed}", style="yellow", highlight=False, markup=False)
        frame = read_frame(file, schema)
        unseen: list[str] | None = [] if allow_unseen else None
        try:
            x = schema.encode(frame, unseen=unseen)
        except ValueError as error:
            if "in training" in str(error):
                error.args = (f"{error}. Say --allow-unseen to predict all the same",)
            raise
        y = schema.encode_target(frame)
        arguments = options.model_arguments()
        name = "probability" if schema.target.task == "binary" else "mean"
        table = predictions(result, x, name, draws, seed, client, arguments)
        if y is not None:
            table["target"] = y.numpy()
        if out is None:
            table.to_csv(sys.stdout, index=False, float_format="%.6g")
            sys.stdout.flush()
        else:
            out.parent.mkdir(parents=True, exist_ok=True)
            table.to_csv(out, index=False)
            messages.print(f"{len(table)} rows written to {out}", highlight=False, markup=False)
        if point := point_estimate(options):
            messages.print(f"Note: {point}; it and the interval say nothing.", style="yellow", highlight=False)
        if result.personal and client is None:
            whose = f"--client NAME takes a client's own ({', '.join(result.personal)})"
            unseen = [f"predicted by the global posterior; {whose}.", *(unseen or ())]
        for note in unseen or ():
            messages.print(f"Note: {note}", style="dim", highlight=False, markup=False)
        if y is not None:
            rows = {client or file.name: Batch((x, y), arguments)}
            # Without --client the rows are a new client's, whatever the file is called.
            known = with_personal(result) if client is not None else replace(result, local={})
            metrics = heldout_metrics(known, rows, min(draws, draws_for(rows)), seed)
            messages.print(render_metrics(metrics.head(1), "Against the target in the file"))
            messages.print("(rows that took part in the fit look better than new ones)", style="dim", highlight=False)


def open_run(folder: Path, model: str | None = None) -> tuple[Result, Schema, FitOptions, str]:
    """What ``pvi fit`` wrote: result, schema, options; and a sentence where the model's file has changed since, or "".

    Raises ``CheckpointError`` for a folder that is damaged.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: there is no such folder; pvi fit --out makes one")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} holds no config.json: it was not written by pvi fit")
    found = read_config(folder / "config.json")
    options = options_from(found, folder / "config.json")
    if model is not None:
        options = replace(options, model=model)
    try:
        schema = Schema.from_dict(found["schema"])
        result = load(folder, model)
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # safetensors has an error class of its own, JSON another, a lost key a third
        raise CheckpointError(f"{folder} is damaged: {type(error).__name__}: {error}; fit again") from error
    if result.model is None:
        raise CheckpointError(
            f"{folder}: its model {result.model_name!r} is not found from here; name it with --model file.py:attribute"
        )
    return result, schema, options, model_changed(found, options.model, folder)


def predictions(
    result: Result, x: torch.Tensor, name: str, draws: int, seed: int, client: str | None, arguments: dict[str, Any]
) -> pd.DataFrame:
    """The table of all rows' predictions, :func:`prediction_table` in parts that fit into memory."""
    site = result.observed[0]
    tables = []
    # Same draws for each part of a long table, so the parts fit together.
    for part in x.split(max(1, MOST_NUMBERS // draws)):
        means = result.mean_draws(part, num_samples=draws, seed=seed, client=client, **arguments)[site]
        tables.append(prediction_table(means.double().cpu(), name))
    table = pd.concat(tables)
    table.insert(0, "row", range(1, len(table) + 1))
    return table


def prediction_table(means: torch.Tensor, name: str) -> pd.DataFrame:
    """The predictive mean of each row, its posterior sd and 95 % interval, from draws ``[draws, rows]``.

    Draws of class probabilities ``[draws, rows, classes]`` give these columns for each class: "probability 0", ....
    """
    if means.ndim == 3:
        tables = (prediction_table(part, "probability") for part in means.unbind(-1))
        return pd.concat([table.add_suffix(f" {label}") for label, table in enumerate(tables)], axis=1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype), 0)
    columns = {name: means.mean(0), "sd": means.std(0), "lower": low, "upper": high}
    return pd.DataFrame({key: value.numpy() for key, value in columns.items()})
