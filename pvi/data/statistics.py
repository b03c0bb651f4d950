"""What a client says about its rows: counts, sums and categories. Only this travels, never a row.

A column's variance comes from the count, the sum and the sum of squares *about the client's own mean*. That is
the same information as the plain sum of squares, but merging it adds only non-negative terms (Chan, Golub and
LeVeque 1983), so that a mean of 1e9 with a spread of 1 loses no digits; no second exchange is needed.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from pvi.data.cells import Cells, cells
from pvi.data.errors import TableError, place

MOST_LEVELS = 50
# The square of twice this, summed over ten million rows, is still a float.
LARGEST = 1e150
COMMA = re.compile(r"[-+]?\d+,\d+")


@dataclass(frozen=True)
class ColumnStatistics:
    """One column of one client, or of several once merged.

    `count` cells that are there, `missing` cells that are not, `numbers` cells that are finite numbers (their
    `total`, `squares` about their own mean, `low` and `high`; infinite if there are none), `whole`: all numbers
    are whole. `distinct` labels; `levels` label -> count, None where there are too many to be categories.
    `stray`: the first cell that is not a number, where most cells are, with its place.
    """

    count: int
    missing: int
    numbers: int
    total: float
    squares: float
    low: float
    high: float
    whole: bool
    distinct: int
    levels: dict[str, int] | None
    stray: str

    @property
    def mean(self) -> float:
        """The mean of the numbers, NaN without any."""
        return self.total / self.numbers if self.numbers else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation of the numbers (divided by their count), NaN without any."""
        return math.sqrt(self.squares / self.numbers) if self.numbers else math.nan


@dataclass(frozen=True)
class ClientStatistics:
    """The message of one client: its number of rows and the statistics of each column, the target included."""

    rows: int
    columns: dict[str, ColumnStatistics]

    def to_dict(self) -> dict[str, Any]:
        """As nested dictionaries of plain values, ready for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "ClientStatistics":
        """The inverse of `to_dict`."""
        columns = {name: ColumnStatistics(**column) for name, column in data["columns"].items()}
        return ClientStatistics(data["rows"], columns)


def client_statistics(
    frame: pd.DataFrame, *, categorical: Collection[str] = (), numeric: Collection[str] = (), client: str = ""
) -> ClientStatistics:
    """The statistics of a tidy frame (see `tidy`) of one client.

    Columns in `categorical` send all their levels, others up to 50. Columns in `numeric` must hold numbers
    only, and send no levels. Raises `TableError` for other cells there, for "inf" or "nan" among numbers, and for
    numbers with a comma.
    """
    columns = {}
    most = dict.fromkeys(numeric, 0) | dict.fromkeys(categorical, len(frame))
    for name in frame.columns:
        column = cells(frame[name])
        if name not in categorical:
            _check_numbers(column, frame.index, name in numeric, client, name)
        columns[name] = _column_statistics(column, frame.index, most.get(name, MOST_LEVELS), place(client, name))
    return ClientStatistics(len(frame), columns)


def _column_statistics(column: Cells, rows: pd.Index, most_levels: int, where: str) -> ColumnStatistics:
    values = column.values()
    values = values[~np.isnan(values)]
    count = int((~column.missing).sum())
    if np.abs(values).max(initial=0) > LARGEST:
        raise TableError(f"{where}the numbers are too large to be squared and summed: rescale the column")
    total = float(values.sum())
    centred = values - total / max(len(values), 1)
    squares = float(centred @ centred)
    counts = np.bincount(column.codes[~column.missing], minlength=len(column.labels))
    stray = ""
    if count / 2 < len(values) < count:
        row = int(np.flatnonzero(np.isnan(column.values()) & ~column.missing)[0])
        stray = f"{where[:-2]}, row {rows[row]} holds {column.labels[column.codes[row]]!r}"
    return ColumnStatistics(
        count=count,
        missing=int(column.missing.sum()),
        numbers=len(values),
        total=total,
        squares=squares,
        low=float(values.min(initial=math.inf)),
        high=float(values.max(initial=-math.inf)),
        whole=bool((values == np.floor(values)).all()),
        distinct=len(column.labels),
        levels=dict(sorted(zip(column.labels, counts.tolist(), strict=True)))
        if len(column.labels) <= most_levels
        else None,
        stray=stray,
    )


def _check_numbers(column: Cells, rows: pd.Index, must: bool, client: str, name: str) -> None:
    is_number = ~np.isnan(column.numbers)
    commas = np.array(
        [
            not fine and bool(COMMA.fullmatch(label))
            for fine, label in zip(is_number.tolist(), column.labels, strict=True)
        ],
        dtype=bool,
    )
    if commas.any() and (is_number | commas).all():
        label = column.labels[int(np.flatnonzero(commas)[0])]
        row = int(np.flatnonzero(column.codes == column.labels.index(label))[0])
        raise TableError(
            f"{place(client, name, rows[row])}{label!r} is a number with a comma: write a point, or make the column "
            "categorical"
        )
    bad = column.unbounded if (is_number | column.unbounded).all() else ~is_number if must else None
    if bad is None or not bad.any():
        return
    row = int(np.flatnonzero(np.append(bad, False)[column.codes])[0])
    label = column.labels[column.codes[row]]
    raise TableError(
        f"{place(client, name, rows[row])}{label!r} is not a finite number: correct it, list it in na if it means "
        "missing, or make the column categorical"
    )


def merge(parts: Iterable[ColumnStatistics]) -> ColumnStatistics:
    """The statistics of all clients' cells from those of each client. `distinct` is exact up to 50 levels."""
    parts = list(parts)
    numbers = sum(part.numbers for part in parts)
    total = math.fsum(part.total for part in parts)
    mean = total / max(numbers, 1)
    between = (part.numbers * (part.mean - mean) ** 2 for part in parts if part.numbers)
    levels: dict[str, int] | None = {}
    for part in parts:
        if levels is None or part.levels is None:
            levels = None
        else:
            levels = {key: levels.get(key, 0) + part.levels.get(key, 0) for key in sorted({*levels, *part.levels})}
    return ColumnStatistics(
        count=sum(part.count for part in parts),
        missing=sum(part.missing for part in parts),
        numbers=numbers,
        total=total,
        squares=math.fsum([*(part.squares for part in parts), *between]),
        low=min(part.low for part in parts),
        high=max(part.high for part in parts),
        whole=all(part.whole for part in parts),
        distinct=sum(part.distinct for part in parts) if levels is None else len(levels),
        levels=levels,
        stray=next((part.stray for part in parts if part.stray), ""),
    )
