"""One column of a table in one form, whatever the file format: distinct labels, their numbers, a code a row."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pvi.data.errors import TableError, listed, place


@dataclass(frozen=True)
class Cells:
    """The cells of one column.

    `codes` int [n] points into `labels` and `numbers` (k entries, in order of appearance); -1 is a missing
    cell. `numbers` float64 [k] is NaN where a label is not a number; "inf" and "nan" are not numbers either,
    and `unbounded` bool [k] marks them.
    """

    codes: np.ndarray
    labels: tuple[str, ...]
    numbers: np.ndarray
    unbounded: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """Which cells are missing, bool [n]."""
        return self.codes < 0

    def values(self) -> np.ndarray:
        """The cells as float64 [n]: NaN where a cell is missing or not a number."""
        return np.append(self.numbers, np.nan)[self.codes]

    def spread(self, by_label: np.ndarray) -> np.ndarray:
        """A value for each label [k] as one for each cell [n]; missing cells get NaN."""
        return np.append(by_label.astype(float), np.nan)[self.codes]


def number(text: str) -> float:
    """The number a cell means; NaN if it means none. Python's own parser: exact to the last bit."""
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def cells(column: pd.Series) -> Cells:
    """The cells of a column of a tidy frame (see `tidy`)."""
    codes, uniques = pd.factorize(column)
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        labels = tuple(str(value) for value in np.asarray(uniques).tolist())
        numbers = np.asarray(uniques, dtype=np.float64)
        unbounded = ~np.isfinite(numbers)
    else:
        labels = tuple(str(value) for value in np.asarray(uniques, dtype=object).tolist())
        numbers = np.array([number(label) for label in labels], dtype=np.float64)
        unbounded = np.isinf(numbers)
        for code in np.flatnonzero(np.isnan(numbers)):
            unbounded[code] = labels[code].lower().lstrip("+-") == "nan"
    return Cells(np.asarray(codes), labels, np.where(unbounded, np.nan, numbers), unbounded)


def tidy(frame: pd.DataFrame, na: Iterable[str] = ("",), *, where: str = "") -> pd.DataFrame:
    """A copy with text names, rows numbered from 1, text stripped, and None for every missing cell.

    Empty cells and cells equal to one of `na` are missing (in a column of numbers: equal in value). Numeric
    columns keep their type, all others become columns of Python objects. Raises `TableError` for duplicated or
    empty names and for cells that are lists or the like; `where` starts its message.
    """
    names = [str(name).strip() for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(
            f"{where}duplicated column names: {listed(map(repr, twice))}. Rename them, or say header=False "
            "(--no-header) if the first row is data"
        )
    if "" in names:
        raise TableError(f"{where}column {names.index('')} (counted from 0) has an empty name")
    tokens = {""} | {token.strip() for token in na}
    values = [number(token) for token in tokens if not math.isnan(number(token))]
    index = pd.RangeIndex(1, len(frame) + 1)
    columns = {}
    for position, name in enumerate(names):
        column = _tidy_column(frame.iloc[:, position], tokens, values, f"{where}{place(None, name)}")
        # The type is said, or pandas turns objects into its own kind of text, which is slow cell by cell.
        columns[name] = pd.Series(column, index=index, dtype=column.dtype)
    return pd.DataFrame(columns, index=index)


def _tidy_column(column: pd.Series, tokens: set[str], values: list[float], where: str) -> np.ndarray:
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.astype(object).where(column.notna(), None).to_numpy()
    if pd.api.types.is_numeric_dtype(column.dtype):
        if pd.api.types.is_complex_dtype(column.dtype):
            raise TableError(f"{where}complex numbers are not supported")
        known = column.to_numpy(dtype=np.float64, na_value=np.nan)
        gone = np.isnan(known) | np.isin(known, values)
        # Whole numbers stay integers, so that a level reads "4" and not "4.0".
        return np.where(gone, np.nan, known) if gone.any() else column.to_numpy()
    raw = column.to_numpy(dtype=object)
    try:
        codes, uniques = pd.factorize(raw)
    except TypeError:
        raise TableError(f"{where}the cells are not text, numbers or true/false: leave the column out") from None
    texts = [value.strip() if isinstance(value, str) else value for value in uniques]
    kept = [None if str(text) in tokens else text for text in texts]
    return np.array([*kept, None], dtype=object)[codes]
