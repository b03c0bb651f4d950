"""The folder of a run: what may be written where, and writing it."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pvi.cli.summary import hyperparameter_frame
from pvi.diagnostics import convergence, forest, to_netcdf
from pvi.programs.batch import Batch
from pvi.report import coefficient_table, history_frame
from pvi.result import Result

CONFIG = "config.json"
NETCDF = "posterior.nc"
HELDOUT, HYPERPARAMETERS = "heldout.csv", "hyperparameters.csv"
WRITTEN = {
    CONFIG: "All options, versions and the tables' schema; pvi fit --config repeats the run.",
    "posterior.safetensors": "Posterior and prior.",
    "factors.safetensors": "What the clients hold: factors and private latents.",
    "result.json": "Sites, settings, rounds; pvi.load(folder) reads these three.",
    NETCDF: "Draws for ArviZ, private latents included.",
    "summary.csv": "The coefficient table.",
    "history.csv": "Every round.",
    HELDOUT: "Held-out metrics by client.",
    HYPERPARAMETERS: "The hyperparameters, learned or as given.",
    "forest.png": "Coefficients with 95 % intervals.",
    "convergence.png": "ELBO by communications.",
}
MOST_NUMBERS = 5_000_000
"""Draws times rows that are held at a time: 40 MB."""


def check_folder(folder: Path, overwrite: bool) -> bool:
    """Make the folder and see that it can be written; returns whether it holds an earlier run, to be replaced.

    Raises ``ValueError`` for a folder that has other things in it (unless ``overwrite``), ``OSError`` where nothing
    can be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out {folder}: there is a file of that name")
    folder.mkdir(parents=True, exist_ok=True)
    is_run = (folder / CONFIG).is_file() and (folder / "result.json").is_file()
    if any(folder.iterdir()) and not is_run and not overwrite:
        raise ValueError(
            f"--out {folder}: the folder is not empty and holds no pvi run; choose another, or say --overwrite to "
            "write into it all the same"
        )
    with tempfile.TemporaryFile(dir=folder):
        pass
    return is_run


def write(
    folder: Path,
    result: Result,
    config: dict[str, Any],
    heldout: Sequence[float],
    metrics: pd.DataFrame | None,
    rows: bool,
) -> None:
    """All files of a run, tables without content left out.

    ``heldout`` is the log density a row after each round; ``rows``: also the clients' rows.
    """
    result.save(folder)
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    coefficient_table(result).to_csv(folder / "summary.csv", index=False)
    history = history_frame(result)
    if metrics is not None:
        history.insert(2, "heldout_log_density", pd.Series(heldout))
    for name, table, index in ((HELDOUT, metrics, True), (HYPERPARAMETERS, hyperparameter_frame(result), False)):
        if table is None or table.empty:
            (folder / name).unlink(missing_ok=True)
        else:
            table.to_csv(folder / name, index=index)
    history.to_csv(folder / "history.csv", index=False)
    forest(result, folder / "forest.png")
    convergence(result, folder / "convergence.png", heldout if metrics is not None else None)
    to_netcdf(result, folder / NETCDF, draws_for(result.data) if rows else 1000, rows=rows)


def draws_for(clients: Mapping[str, Batch]) -> int:
    """As many posterior draws as these rows allow, 100 to 1,000."""
    rows = sum(batch.num_rows for batch in clients.values())
    return min(1000, max(100, MOST_NUMBERS // max(1, rows)))
