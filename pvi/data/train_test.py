"""One table as a training and a test set: the preprocessing of published runs on the UCI tables."""

from typing import NamedTuple

import numpy as np

from pvi.data.aggregation import Choices
from pvi.data.build import FitRows, Request, build
from pvi.data.cells import tidy
from pvi.data.errors import TableError
from pvi.data.reading import ReadOptions
from pvi.data.schema import encode_rows, encode_target
from pvi.data.tables import Pair
from pvi.data.uci import Dataset


class TrainTest(NamedTuple):
    """Training and test rows as (x float64 [n, d], y float64 [n]), the d features' names, sentences for the user."""

    train: Pair
    test: Pair
    columns: tuple[str, ...]
    notes: tuple[str, ...]


def train_test(
    dataset: Dataset, *, test: float = 0.2, seed: int = 0, fit_rows: FitRows = "training", rows: int | None = None
) -> TrainTest:
    """A table as the published runs of PVI prepare it: shuffled, numbers standardised, every level an indicator.

    Rows with gaps are dropped where the data set says so ("?" is a level otherwise), then all are shuffled (NumPy's
    RandomState of the seed) and the last ⌊test · n⌋ are the test set. Numeric columns are standardised by the
    training rows; `fit_rows` "all" uses the test rows too, as published runs do, and knows the levels that only test
    rows have: for comparison only. `rows` keeps the first so many of the shuffled rows.

    Raises `TableError` for a share outside (0, 1), more `rows` than there are, and sets that would be empty.
    """
    if not 0 < test < 1:
        raise TableError(f"test is the share of rows in the test set, between 0 and 1, not {test}")
    frame = tidy(dataset.frame, ("",))
    notes = []
    if dataset.missing == "drop":
        kept = frame.dropna()
        if len(kept) < len(frame):
            notes.append(f"{len(frame) - len(kept)} of {len(frame)} rows were dropped for missing cells.")
        frame = kept
    if rows is not None and not 2 <= rows <= len(frame):
        raise TableError(f"{dataset.name}: {rows} rows asked for, there are {len(frame)}")
    frame = frame.iloc[np.random.RandomState(seed).permutation(len(frame))[:rows]]
    number = int(test * len(frame) + 1e-9)
    if not 0 < number < len(frame):
        raise TableError(f"{dataset.name}: a test set of {number} of {len(frame)} rows; choose another test or rows")
    parts = {"train": frame.iloc[: len(frame) - number], "test": frame.iloc[len(frame) - number :]}
    known = parts if fit_rows == "all" else {"train": parts["train"]}
    # Rows keep the numbers that they have in the file: messages name them.
    request = Request(dataset.target, dataset.positive, holdout=0.0, fit_rows=fit_rows)
    choices = Choices(dataset.numeric, dataset.categorical, missing=dataset.missing, coding="full")
    tables = build(known, request, choices, ReadOptions())
    notes += tables.notes
    if fit_rows == "all":
        return TrainTest(tables["train"], tables["test"], tables.columns, tuple(notes))
    x = encode_rows(tables.schema, parts["test"], client="test", unseen=notes)
    y = encode_target(tables.schema.target, parts["test"], client="test")
    return TrainTest(tables["train"], (x, y), tables.columns, tuple(notes))
