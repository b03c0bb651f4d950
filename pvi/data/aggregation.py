"""The clients' statistics to the columns of a schema: kinds, levels, means, scales. Nothing here sees a row."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pvi.data.cells import number
from pvi.data.columns import Column, Kind
from pvi.data.errors import TableError, listed, place
from pvi.data.kinds import kind_of, ordered_levels
from pvi.data.statistics import ClientStatistics, ColumnStatistics, merge

Missing = Literal["error", "drop", "mean", "indicator"]
Standardise = Literal["numeric", "all", "none"]
Coding = Literal["reference", "full"]


@dataclass(frozen=True)
class Choices:
    """What the user says about the columns; the same for all clients.

    `numeric`, `categorical`, `boolean` name columns whose kind is not to be inferred. `missing` cells: "error",
    "drop" (rows), "mean" (the mean of all clients; for a category its most frequent level), "indicator" (as
    "mean" for numbers, and a feature "name missing" of its own). `standardise`: "numeric" columns, "all"
    features or "none". `coding` of categories: without a "reference" level, or "full".
    """

    numeric: Collection[str | int] = ()
    categorical: Collection[str | int] = ()
    boolean: Collection[str | int] = ()
    missing: Missing = "error"
    standardise: Standardise = "numeric"
    coding: Coding = "reference"

    def __post_init__(self) -> None:
        words = (("missing", Missing), ("standardise", Standardise), ("coding", Coding))
        for name, kind in words:
            if getattr(self, name) not in get_args(kind):
                raise TableError(f"{name} is one of {listed(get_args(kind))}, not {getattr(self, name)!r}")
        said = [*self.numeric, *self.categorical, *self.boolean]
        twice = sorted({name for name in said if said.count(name) > 1})
        if twice:
            raise TableError(f"columns said to be of two kinds: {listed(map(repr, twice))}")

    def said(self, name: str) -> Kind | None:
        """The kind the user gave to a column, if any."""
        kinds: tuple[tuple[Kind, Collection[str | int]], ...] = (
            ("numeric", self.numeric),
            ("categorical", self.categorical),
            ("boolean", self.boolean),
        )
        return next((kind for kind, names in kinds if name in names), None)


def aggregate(
    statistics: Mapping[str, ClientStatistics], choices: Choices | None = None, *, ignore: Collection[str] = ()
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """The columns of a schema, and sentences for the user, from the statistics of each client.

    Columns in `ignore` (the target) get none. Raises `TableError` for clients whose columns differ, and where
    a column cannot be of the kind it is said to be (see `kind_of`).
    """
    choices = choices or Choices()
    check_same_columns({client: list(said.columns) for client, said in statistics.items()})
    rows = sum(said.rows for said in statistics.values())
    columns: list[Column] = []
    notes: list[str] = []
    for name in next(iter(statistics.values())).columns:
        if name in ignore:
            continue
        parts = {client: said.columns[name] for client, said in statistics.items()}
        seen = merge(parts.values())
        columns.append(_column(name, seen, rows, choices))
        notes += _notes(columns[-1], seen, parts)
    references = [f"{column.name}={column.reference}" for column in columns if column.reference is not None]
    if references:
        notes.append(f"Reference levels (most frequent over all clients, no feature): {listed(references, 40)}.")
    return tuple(columns), tuple(notes)


def check_same_columns(names: Mapping[str, Sequence[str]]) -> None:
    """Raise `TableError` unless every client has the columns of the first, in any order."""
    reference, *others = names
    for client in others:
        less = [name for name in names[reference] if name not in names[client]]
        more = [name for name in names[client] if name not in names[reference]]
        if less or more:
            said = [f"lacks {listed(map(repr, less))}"] if less else []
            said += [f"has the extra {listed(map(repr, more))}"] if more else []
            raise TableError(
                f"{place(client)}the columns are not those of client {reference!r}: it {' and '.join(said)}. Make the "
                "names agree, or leave columns out with drop"
            )


def _column(name: str, seen: ColumnStatistics, rows: int, choices: Choices) -> Column:
    kind = kind_of(name, seen, choices.said(name))
    column = Column(name, kind)
    shares: list[float] = []
    deviations: list[float] = []
    everything = choices.standardise == "all"
    if seen.missing and choices.missing == "indicator":
        column = replace(column, missing="indicator")
    elif seen.missing and choices.missing == "mean" and kind != "constant":
        column = replace(column, missing="fill")
    if kind == "numeric":
        column = replace(column, fill=seen.mean)
        plain = choices.standardise == "none"
        shares, deviations = ([0.0], [1.0]) if plain else ([seen.mean], [seen.deviation])
    elif kind == "boolean":
        counts, by_value = ordered_levels(seen.levels or {})
        levels = tuple(sorted(counts, key=number if by_value else str.lower))
        share = counts[levels[1]] / seen.count
        column = replace(column, levels=levels, by_value=by_value, fill=share)
        shares = [share]
    elif kind == "categorical":
        counts, by_value = ordered_levels(seen.levels or {})
        most = max(counts, key=lambda level: counts[level])
        reference = most if choices.coding == "reference" else None
        column = replace(column, levels=tuple(counts), by_value=by_value, reference=reference, fill=most)
        if column.missing == "fill":
            counts[most] += seen.missing
        shares = [counts[level] / rows for level in column.shown]
    if column.missing == "indicator":
        shares.append(seen.missing / rows)
    # A 0/1 feature that is 1 in a share p of the rows has standard deviation √(p(1 - p)).
    deviations += [math.sqrt(share * (1 - share)) if everything else 1.0 for share in shares[len(deviations) :]]
    offsets = [share if everything or (kind == "numeric" and at == 0) else 0.0 for at, share in enumerate(shares)]
    return replace(column, offsets=tuple(offsets), scales=tuple(scale or 1.0 for scale in deviations))


def _notes(column: Column, seen: ColumnStatistics, parts: Mapping[str, ColumnStatistics]) -> list[str]:
    """Sentences about one column."""
    name = column.name
    if column.kind == "constant":
        value = "no cell has a value" if not seen.count else "it has the same value in every row"
        kept = f"; its feature '{name} missing' is kept" if column.missing == "indicator" else ""
        return [f"Column {name!r} was left out: {value}{kept}."]
    notes = []
    if column.kind == "boolean" and (not column.by_value or {number(v) for v in column.levels} != {0.0, 1.0}):
        notes.append(f"Column {name!r}: {column.levels[1]} became 1, {column.levels[0]} became 0.")
    if column.kind == "numeric" and seen.whole and seen.distinct == seen.count > 50:
        notes.append(f"Column {name!r} has another whole number in every row: if it is an identifier, drop it.")
    if column.kind == "categorical" and len(parts) > 1:
        partial = []
        for level in column.levels:
            same = number(level) if column.by_value else level
            has = [
                client
                for client, part in parts.items()
                if any((number(label) if column.by_value else label) == same for label in part.levels or ())
            ]
            if len(has) < len(parts):
                partial.append(f"{level} ({'only ' + has[0] if len(has) == 1 else f'{len(has)} of {len(parts)}'})")
        if partial:
            notes.append(f"Column {name!r}: levels that not all clients have: {listed(partial, 6)}.")
    return notes
