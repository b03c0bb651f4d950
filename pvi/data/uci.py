"""Three public data sets of the UCI repository, from local files or from OpenML.

Local files are looked for in `data_dir`, else in the folder that the environment variable PVI_DATA names; where
that has none, scikit-learn fetches the set from OpenML and caches it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from pvi.data.aggregation import Missing
from pvi.data.errors import TableError
from pvi.data.reading import ReadOptions, read_file
from pvi.data.sources import split_by, tables_from_frames
from pvi.data.tables import Tables

Part = Literal["all", "train", "test"]

ADULT = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
    "capital-loss hours-per-week native-country income"
)
BANK = (
    "age job marital education default balance housing loan contact day month duration campaign pdays previous "
    "poutcome y"
)
CREDIT = "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15 A16"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as a frame (missing cells are None) with what the published runs say about its columns.

    `numeric` and `categorical` are the columns of the published preprocessing, `missing` how it treats gaps.
    """

    name: str
    frame: pd.DataFrame
    target: str
    positive: str
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    missing: Missing

    def tables(self, clients: int | str | Sequence[object] = 1, *, seed: int = 0, **options: Any) -> Tables:
        """Tables with the rows spread over clients; `options` are those of `tables_from_frames`.

        `clients`: a number (rows are shuffled with the seed and dealt evenly to "client 1", "client 2", ...),
        the name of a column, or a name for each row. Raises `TableError` as `tables_from_frames`.
        """
        settings: dict[str, Any] = {
            "target": self.target,
            "positive": self.positive,
            "numeric": self.numeric,
            "categorical": self.categorical,
            "missing": self.missing,
            "seed": seed,
        }
        frame = self.frame
        if isinstance(clients, str):
            if clients not in frame.columns:
                raise TableError(f"{self.name}: there is no column {clients!r} to name the clients")
            settings["drop"] = clients
            return tables_from_frames(split_by(frame, clients), **{**settings, **options})
        if isinstance(clients, int):
            if not 1 <= clients <= len(frame):
                raise TableError(f"{self.name}: {clients} clients for {len(frame)} rows")
            order = np.random.default_rng(seed).permutation(len(frame))
            parts = [np.sort(part) for part in np.array_split(order, clients)]
            frames = {f"client {place + 1}": frame.iloc[part] for place, part in enumerate(parts)}
            return tables_from_frames(frames, **{**settings, **options})
        names = np.array([str(client) for client in clients], dtype=object)
        if len(names) != len(frame):
            raise TableError(f"{self.name}: {len(names)} clients' names for {len(frame)} rows")
        frames = {client: frame[names == client] for client in dict.fromkeys(names.tolist())}
        return tables_from_frames(frames, **{**settings, **options})


def adult(data_dir: str | Path | None = None, part: Part = "all") -> Dataset:
    """Adult (census income): 48,842 people, 14 columns, is the income above 50,000 dollars.

    `part` "train" and "test" are the official files of 32,561 and 16,281 rows (not told apart on OpenML).
    Raises `TableError` where the files are not in `data_dir`, or OpenML cannot be reached.
    """
    if part not in ("all", "train", "test"):
        raise TableError(f"part is 'all', 'train' or 'test', not {part!r}")
    folder = _folder(data_dir, "adult/adult.data")
    if folder is None:
        if part != "all":
            raise TableError("OpenML does not tell Adult's official parts apart: set PVI_DATA, or ask for part='all'")
        frame = _openml("adult", 2, ADULT.split())
    else:
        options = ReadOptions(header=False, separator=",", na=("?",), names=tuple(ADULT.split()))
        frames = [read_file(folder / "adult/adult.data", options)] if part != "test" else []
        if part != "train":
            # The first line of the test file is a remark.
            test = ReadOptions(header=False, separator=",", na=("?",), names=tuple(ADULT.split()), skip=1)
            frames.append(read_file(folder / "adult/adult.test", test))
        frame = pd.concat(frames, ignore_index=True)
        # Labels of the test file end with a full stop.
        frame["income"] = frame["income"].str.rstrip(".")
    return _dataset("adult", frame, "income", ">50K", (0, 2, 4, 10, 11, 12), "indicator")


def bank(data_dir: str | Path | None = None) -> Dataset:
    """Bank Marketing (2012): 45,211 calls, 16 columns, does the client subscribe. "unknown" is a level.

    Raises `TableError` where the file is not in `data_dir`, or OpenML cannot be reached.
    """
    folder = _folder(data_dir, "bank/bank-full.csv.gz")
    if folder is None:
        frame = _openml("bank-marketing", 1, BANK.split())
        frame["y"] = frame["y"].map({"1": "no", "2": "yes"})
    else:
        frame = read_file(folder / "bank/bank-full.csv.gz", ReadOptions(separator=";"))
    return _dataset("bank", frame, "y", "yes", (0, 5, 9, 11, 12, 13, 14), "error")


def credit(data_dir: str | Path | None = None) -> Dataset:
    """Credit Approval: 690 applications, 15 columns without meaning, is it granted. 37 rows have gaps.

    Raises `TableError` where the file is not in `data_dir`, or OpenML cannot be reached.
    """
    folder = _folder(data_dir, "credit/crx.data")
    if folder is None:
        frame = _openml("credit-approval", 1, CREDIT.split())
    else:
        options = ReadOptions(header=False, separator=",", na=("?",), names=tuple(CREDIT.split()))
        frame = read_file(folder / "credit/crx.data", options)
    return _dataset("credit", frame, "A16", "+", (1, 2, 7, 10, 13, 14), "drop")


def _dataset(
    name: str, frame: pd.DataFrame, target: str, positive: str, numeric: Sequence[int], missing: Missing
) -> Dataset:
    columns = [str(column) for column in frame.columns]
    numbers = tuple(columns[place] for place in numeric)
    others = tuple(column for column in columns if column not in (*numbers, target))
    return Dataset(name, frame, target, positive, numbers, others, missing)


def _folder(data_dir: str | Path | None, file: str) -> Path | None:
    """The folder that holds `file`; None means OpenML. A folder that the caller names must have it."""
    if data_dir is not None:
        if not (Path(data_dir) / file).exists():
            raise TableError(f"{Path(data_dir) / file}: file not found (without data_dir the set comes from OpenML)")
        return Path(data_dir)
    named = os.environ.get("PVI_DATA")
    return Path(named) if named and (Path(named) / file).exists() else None


def _openml(name: str, version: int, columns: Sequence[str]) -> pd.DataFrame:
    """A set of OpenML with our column names; its columns are in the order of the UCI files."""
    from sklearn.datasets import fetch_openml

    try:
        bunch = fetch_openml(name, version=version, as_frame=True, parser="auto")
    except (OSError, ValueError) as error:
        raise TableError(
            f"{name} could not be fetched from OpenML ({error}): connect to the network, or set PVI_DATA to the "
            "folder that has the UCI files"
        ) from error
    frame = pd.concat([bunch.data, bunch.target], axis=1)
    if frame.shape[1] != len(columns):
        raise TableError(f"{name}: OpenML sent {frame.shape[1]} columns instead of {len(columns)}")
    # Categories of OpenML become plain text, so that both ways give the same frame.
    plain = {new: frame.iloc[:, place] for place, new in enumerate(columns)}
    return pd.DataFrame({new: old.astype(object) if old.dtype == "category" else old for new, old in plain.items()})
