"""The folder of a run: what may be written where, and writing it."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pvi.cli.summary import hyperparameter_frame
from pvi.diagnostics import convergence, forest, to_netcdf
from pvi.programs.batch import Batch
from pvi.report import coefficient_table, history_frame
from pvi.result import Result

CONFIG = "config.json"
SAVED = ("posterior.safetensors", "factors.safetensors", "result.json")
NETCDF = "posterior.nc"
HELDOUT, HYPERPARAMETERS = "heldout.csv", "hyperparameters.csv"
PERSONAL, COEFFICIENTS = "personal.csv", "personal_summary.csv"
WRITTEN = {
    CONFIG: "All options, versions and the tables' schema; pvi fit --config repeats the run.",
    "posterior.safetensors": "Posterior and prior.",
    "factors.safetensors": "What the clients hold: factors, private latents, personal posteriors.",
    "result.json": "Sites, settings, rounds; pvi.load(folder) reads these three.",
    NETCDF: "Draws for ArviZ, latents of clients included.",
    "summary.csv": "The coefficient table.",
    COEFFICIENTS: "The same of every client's personal posterior.",
    "history.csv": "Every round.",
    HELDOUT: "Held-out metrics by client.",
    PERSONAL: "Held-out rows by the personal (pm) and the global posterior (gm).",
    HYPERPARAMETERS: "The hyperparameters, learned or as given.",
    "forest.png": "Coefficients with 95 % intervals.",
    "convergence.png": "The rounds' ELBO (or objective) by communications.",
}
MOST_NUMBERS = 5_000_000
"""Draws times rows that are held at a time: 40 MB."""


class Written(NamedTuple):
    """A file that is complete, or that was left out and why."""

    name: str
    why_not: str = ""


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
    curves: Mapping[str, Sequence[float]],
    metrics: Mapping[str, pd.DataFrame],
    rows: bool,
) -> Iterator[Written]:
    """All files of a run, tables without content left out; each is told of when it is complete, pictures come last.

    A picture that cannot be drawn is left out, and why is told: the numbers are there all the same.
    ``curves``: the held-out log density a row after each round, of the ``global`` posterior and of ``personal`` ones
    (empty without these); ``metrics``: tables of held-out rows by file name; ``rows``: also the clients' rows.
    """
    result.save(folder)
    yield from map(Written, SAVED)
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    yield Written(CONFIG)
    coefficient_table(result).to_csv(folder / "summary.csv", index=False)
    yield Written("summary.csv")
    history = history_frame(result)
    shown = curves if HELDOUT in metrics else {}
    for place, (name, suffix) in enumerate((("global", ""), ("personal", "_personal")), 2):
        if shown.get(name):
            history.insert(place, f"heldout_log_density{suffix}", pd.Series(shown[name]))
    tables = {
        HELDOUT: metrics.get(HELDOUT),
        PERSONAL: metrics.get(PERSONAL),
        HYPERPARAMETERS: hyperparameter_frame(result).set_index("hyperparameter"),
        COEFFICIENTS: personal_coefficients(result) if result.personal else None,
    }
    for name, table in tables.items():
        if table is None or table.empty:
            (folder / name).unlink(missing_ok=True)
        else:
            table.to_csv(folder / name)
            yield Written(name)
    history.to_csv(folder / "history.csv", index=False)
    yield Written("history.csv")
    to_netcdf(result, folder / NETCDF, draws_for(result.data) if rows else 1000, rows=rows)
    yield Written(NETCDF)
    curve = partial(convergence, heldout=shown.get("global"), personal=shown.get("personal"))
    for name, draw in (("forest.png", forest), ("convergence.png", curve)):
        try:
            draw(result, folder / name)
            why_not = ""
        except ValueError as error:  # of numbers that no axis holds; an earlier run's picture must not stay
            (folder / name).unlink(missing_ok=True)
            why_not = str(error)
        yield Written(name, why_not)


def clear(folder: Path, complete: Sequence[str]) -> None:
    """Take away what a run that was stopped while it wrote has not completed, an earlier run's files among it."""
    for name in set(WRITTEN) - set(complete):
        (folder / name).unlink(missing_ok=True)


def personal_coefficients(result: Result) -> pd.DataFrame:
    """The coefficient table of each client's personal posterior, one under the other."""
    tables = {client: coefficient_table(result.of_client(client)) for client in result.personal}
    return pd.concat(tables, names=["client"]).droplevel(1)


def draws_for(clients: Mapping[str, Batch]) -> int:
    """As many posterior draws as these rows allow, 100 to 1,000."""
    rows = sum(batch.num_rows for batch in clients.values())
    return min(1000, max(100, MOST_NUMBERS // max(1, rows)))
