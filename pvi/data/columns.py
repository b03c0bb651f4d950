"""One column of a table as features: numbers, 0/1 columns for levels, and a column that says what was missing."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pvi.data.cells import Cells, number
from pvi.data.errors import TableError, listed, place
from pvi.data.statistics import LARGEST

Kind = Literal["numeric", "boolean", "categorical", "constant"]


@dataclass(frozen=True)
class Column:
    """How one column becomes k features.

    `kind`: "numeric" (k = 1), "boolean" (k = 1; `levels` are the labels of 0 and 1), "categorical" (a feature
    "name=level" for each level but `reference`) or "constant" (k = 0). `by_value`: levels are numbers and
    compared as such ("4" is "4.0"). `missing`: "error", "fill" (a missing cell becomes `fill`, a number or a
    level) or "indicator" (filled, and one more feature "name missing"; a category has no level then).
    `offsets`, `scales` [k]: a feature is (value - offset) / scale.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    by_value: bool = False
    reference: str | None = None
    missing: Literal["error", "fill", "indicator"] = "error"
    fill: float | str | None = None
    offsets: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The levels that have a feature of their own."""
        return tuple(level for level in self.levels if level != self.reference)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the k features."""
        own: tuple[str, ...] = ()
        if self.kind in ("numeric", "boolean"):
            own = (self.name,)
        elif self.kind == "categorical":
            own = tuple(f"{self.name}={level}" for level in self.shown)
        return (*own, f"{self.name} missing") if self.missing == "indicator" else own


def encode_column(
    column: Column, found: Cells, *, rows: np.ndarray, client: str = "", unseen: list[str] | None = None
) -> np.ndarray:
    """The features of a column, float64 [n, k].

    Raises `TableError` for text among numbers and numbers out of all scale, and, unless `unseen` is a list, for a
    level or a missing cell that training did not have. With a list, such cells become 0 in all level features or
    `column.fill`, and a sentence for each is added to the list. `rows` are the row numbers, for the messages.
    """
    own = np.empty((len(found.codes), 0))
    if column.kind != "constant" or column.missing == "indicator":
        if column.missing == "error" and found.missing.any():
            _complain(column, found.missing, "a cell is missing, and none was in training", rows, client, unseen)
        if column.kind == "numeric":
            own = _numbers(column, found, rows, client)[:, None]
        elif column.kind != "constant":
            own = _levels(column, found, rows, client, unseen)
    gone = found.missing[:, None].astype(np.float64) if column.missing == "indicator" else own[:, :0]
    with np.errstate(over="ignore"):
        features = (np.hstack([own, gone]) - np.array(column.offsets)) / np.array(column.scales)
    large = ~(np.abs(features) <= LARGEST).all(axis=1)
    if large.any():
        row = rows[np.flatnonzero(large)[0]]
        raise TableError(f"{place(client, column.name, row)}the number is too large for the column's scale")
    return features


def _numbers(column: Column, found: Cells, rows: np.ndarray, client: str) -> np.ndarray:
    values = found.values()
    text = np.isnan(values) & ~found.missing
    if text.any():
        row = int(np.flatnonzero(text)[0])
        raise TableError(
            f"{place(client, column.name, rows[row])}{found.labels[found.codes[row]]!r} is not a finite number: "
            "correct it, list it in na if it means missing, or make the column categorical"
        )
    return np.where(found.missing, _fill(column), values)


def _fill(column: Column) -> float:
    return column.fill if isinstance(column.fill, float) else math.nan


def _levels(column: Column, found: Cells, rows: np.ndarray, client: str, unseen: list[str] | None) -> np.ndarray:
    if column.by_value:
        places = {number(level): index for index, level in enumerate(column.levels)}
        index = [places.get(value, -1) if not math.isnan(value) else -1 for value in found.numbers.tolist()]
    else:
        known = {level: index for index, level in enumerate(column.levels)}
        index = [known.get(label, -1) for label in found.labels]
    new = np.array([place < 0 for place in index], dtype=bool)
    for code in np.flatnonzero(new):
        what = f"the level {found.labels[code]!r} was not in training (levels: {listed(column.levels)})"
        _complain(column, found.codes == code, what, rows, client, unseen)
    if column.kind == "boolean":
        values = found.spread(np.maximum(np.array(index, dtype=np.float64), 0.0))
        return np.where(found.missing, _fill(column), values)[:, None]
    fill = column.levels.index(str(column.fill)) if column.missing != "indicator" else -1
    each = np.array([*index, fill], dtype=np.int64)[found.codes]
    shown = [column.levels.index(level) for level in column.shown]
    return (each[:, None] == np.array(shown, dtype=np.int64)[None, :]).astype(np.float64)


def _complain(
    column: Column, bad: np.ndarray, what: str, rows: np.ndarray, client: str, unseen: list[str] | None
) -> None:
    first = int(rows[np.flatnonzero(bad)[0]])
    if unseen is None:
        raise TableError(f"{place(client, column.name, first)}{what}")
    instead = "0 in all features of the column" if "level" in what else "filled as in training"
    start = f"Held-out rows of client {client!r}, column {column.name!r}: "
    unseen.append(f"{start}{what}; {instead} ({int(bad.sum())} of {len(bad)} rows).")
