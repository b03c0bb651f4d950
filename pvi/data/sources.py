"""The two ways in: files and pandas frames."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from pvi.data.aggregation import Choices, Coding, Missing, Standardise
from pvi.data.build import FitRows, Name, Request, build
from pvi.data.cells import cells, tidy
from pvi.data.errors import TableError, place, resolve
from pvi.data.reading import ReadOptions, client_names, read_file
from pvi.data.tables import Tables
from pvi.data.target import Task

Names = Name | Iterable[Name]
Paths = str | Path | Iterable[str | Path] | Mapping[str, str | Path]


def read_tables(
    paths: Paths,
    *,
    by: Name | None = None,
    target: Name,
    positive: object = None,
    task: Task = "binary",
    header: bool = True,
    separator: str | None = None,
    names: Iterable[str] = (),
    na: str | Iterable[str] = ("",),
    numeric: Names = (),
    categorical: Names = (),
    boolean: Names = (),
    drop: Names = (),
    missing: Missing = "error",
    standardise: Standardise = "numeric",
    coding: Coding = "reference",
    holdout: float = 0.2,
    seed: int = 0,
    fit_rows: FitRows = "training",
) -> Tables:
    """Tables from files: one file a client, or one file with a column `by` that names the clients.

    A client is called as its file without the words that all files share; a mapping name -> path says it
    outright. Columns are named by text or by position (0 is the first); without a `header` they are called
    `names`, or "0", "1", ....

    `target` is predicted: `task` "binary" needs 0 and 1, or `positive` (">0", ">=50", "<=3", "!=x", "==x", or a
    value); "numeric" keeps the number. Cells equal to one of `na` are missing; `missing` is "error", "drop"
    (rows), "mean" (of all clients; a category's most frequent level) or "indicator" (a feature "name missing"
    besides). `numeric`, `categorical`, `boolean` override what the cells look like; `drop` leaves columns out.
    `standardise` "numeric" columns, "all" features or "none", by the mean and the standard deviation of all
    clients' training rows; `coding` "reference" leaves the most frequent level out, "full" keeps it.

    Each client holds out the fraction `holdout` of its rows. Statistics come from the training rows;
    `fit_rows` "all" is only for comparison with published runs, which use the test rows too.

    Raises `TableError` for bad input, naming client, column and row (the first row of data is row 1).
    """
    options = ReadOptions(header, separator, _texts(na), tuple(str(name) for name in names))
    if header and options.names:
        raise TableError("names are for files without a header: say header=False too")
    request = Request(target, positive, task, _many(drop), holdout, seed, fit_rows)
    choices = Choices(_many(numeric), _many(categorical), _many(boolean), missing, standardise, coding)
    if isinstance(paths, Mapping):
        files = {str(client): Path(path) for client, path in paths.items()}
    else:
        found = [Path(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
        files = dict(zip(client_names(found), found, strict=True))
    if not files:
        raise TableError("no files: give one file for each client, or one file and the column that names them (by)")
    if by is None:
        frames = {client: read_file(path, options, client=client) for client, path in files.items()}
        tables = build(frames, request, choices, options)
        return replace(tables, notes=(*_same_files(files), *tables.notes))
    if len(files) > 1:
        raise TableError(f"by={by!r} splits one file into clients; {len(files)} files were given")
    frame = read_file(next(iter(files.values())), options)
    column = resolve(by, list(frame.columns), "by", not header)
    return build(split_by(frame, column), request, choices, options, ignored=(column,))


def tables_from_frames(
    frames: Mapping[str, pd.DataFrame],
    *,
    target: Name,
    positive: object = None,
    task: Task = "binary",
    na: str | Iterable[str] = ("",),
    numeric: Names = (),
    categorical: Names = (),
    boolean: Names = (),
    drop: Names = (),
    missing: Missing = "error",
    standardise: Standardise = "numeric",
    coding: Coding = "reference",
    holdout: float = 0.2,
    seed: int = 0,
    fit_rows: FitRows = "training",
) -> Tables:
    """Tables from one pandas frame a client, client -> frame; the options are those of `read_tables`.

    Raises `TableError` for bad input, naming client, column and row (counted from 1).
    """
    options = ReadOptions(na=_texts(na))
    clean = {str(client): tidy(frame, options.na, where=place(str(client))) for client, frame in frames.items()}
    request = Request(target, positive, task, _many(drop), holdout, seed, fit_rows)
    choices = Choices(_many(numeric), _many(categorical), _many(boolean), missing, standardise, coding)
    return build(clean, request, choices, options)


def split_by(frame: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """The rows of a tidy frame for each value of a column, in the order of the values; rows keep their numbers.

    Raises `TableError` for a missing value in the column.
    """
    found = cells(frame[column])
    if found.missing.any():
        row = frame.index[int(found.missing.argmax())]
        raise TableError(f"{place(column=column, row=row)}the client's name is missing")
    by_value = bool((found.numbers == found.numbers).all())
    order = sorted(range(len(found.labels)), key=found.numbers.__getitem__ if by_value else found.labels.__getitem__)
    return {found.labels[code]: frame[found.codes == code] for code in order}


def _same_files(files: Mapping[str, Path]) -> list[str]:
    """Sentences about clients whose files are the same to the last byte."""
    clients: dict[str, list[str]] = {}
    for client, path in files.items():
        with path.open("rb") as content:
            clients.setdefault(hashlib.file_digest(content, "sha256").hexdigest(), []).append(client)
    return [
        f"Clients {' and '.join(map(repr, same))} have the same file: its rows count {len(same)} times."
        for same in clients.values()
        if len(same) > 1
    ]


def _many(names: Names) -> tuple[Name, ...]:
    return (names,) if isinstance(names, (str, int)) else tuple(names)


def _texts(texts: str | Iterable[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(str(text) for text in texts)
