"""The steps from clients' frames to tables: check, split, exchange statistics, encode."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import pandas as pd

from pvi.data.aggregation import Choices, aggregate, check_same_columns
from pvi.data.cells import number
from pvi.data.errors import TableError, listed, place, resolve
from pvi.data.reading import ReadOptions
from pvi.data.rows import handle_missing, held_out
from pvi.data.schema import Schema, encode_rows, encode_target
from pvi.data.statistics import ColumnStatistics, client_statistics, merge
from pvi.data.tables import Pair, Tables
from pvi.data.target import Task, positive_note, target_rule

Name = str | int
FitRows = Literal["training", "all"]


@dataclass(frozen=True)
class Request:
    """What to predict from which columns, and which rows to hold out (see `read_tables`)."""

    target: Name
    positive: object = None
    task: Task = "binary"
    drop: tuple[Name, ...] = ()
    holdout: float = 0.2
    seed: int = 0
    fit_rows: FitRows = "training"

    def __post_init__(self) -> None:
        if self.task not in ("binary", "numeric"):
            raise TableError(f"task is 'binary' or 'numeric', not {self.task!r}")
        if self.fit_rows not in ("training", "all"):
            raise TableError(f"fit_rows is 'training' or 'all', not {self.fit_rows!r}")


class Prepared(NamedTuple):
    """Checked frames without left-out columns, the choices and the target by name, columns left out, and notes."""

    frames: dict[str, pd.DataFrame]
    choices: Choices
    target: str
    drop: tuple[str, ...]
    gaps: dict[str, int]
    notes: tuple[str, ...]


def prepare(
    frames: Mapping[str, pd.DataFrame],
    request: Request,
    choices: Choices,
    options: ReadOptions,
    ignored: tuple[str, ...],
) -> Prepared:
    """Resolve every name, check that all clients have the same columns, deal with missing cells."""
    if not frames:
        raise TableError("no clients: give at least one table")
    for client, frame in frames.items():
        if frame.empty:
            raise TableError(f"{place(client)}the table has no rows or no columns")
    names = list(dict.fromkeys(name for frame in frames.values() for name in frame.columns))

    def resolved(said: Iterable[Name], what: str) -> tuple[str, ...]:
        return tuple(resolve(name, names, what, not options.header) for name in said)

    target = resolve(request.target, names, "target", not options.header)
    drop = (*resolved(request.drop, "drop"), *ignored)
    if target in drop:
        raise TableError(f"the target {target!r} is among the columns to leave out (drop, or the clients' names)")
    choices = replace(
        choices,
        numeric=resolved(choices.numeric, "numeric"),
        categorical=resolved(choices.categorical, "categorical"),
        boolean=resolved(choices.boolean, "boolean"),
    )
    kept = {client: frame.drop(columns=list(drop), errors="ignore") for client, frame in frames.items()}
    check_same_columns({client: list(frame.columns) for client, frame in kept.items()})
    order = [name for name in names if name not in drop]
    kept = {client: frame[order] for client, frame in kept.items()}
    if len(order) < 2:
        raise TableError(f"no feature is left beside the target {target!r}")
    gaps = {client: int(frame.drop(columns=target).isna().sum().sum()) for client, frame in kept.items()}
    kept, lost = handle_missing(kept, choices.missing)
    return Prepared(kept, choices, target, drop, gaps, tuple(lost))


def build(
    frames: Mapping[str, pd.DataFrame],
    request: Request,
    choices: Choices,
    options: ReadOptions,
    *,
    ignored: tuple[str, ...] = (),
) -> Tables:
    """Tables from tidy frames (see `tidy`) whose index numbers the rows in messages.

    `ignored` are columns that named the clients. Names in `choices` may be positions here. Raises `TableError`.
    """
    kept, choices, target, drop, gaps, lost = prepare(frames, request, choices, options, ignored)
    masks = {
        client: held_out(len(frame), request.holdout, seed=request.seed, client=client)
        for client, frame in kept.items()
    }
    fitted = {client: frame if request.fit_rows == "all" else frame[~masks[client]] for client, frame in kept.items()}
    # From here to the schema everything is made of the messages that clients would send.
    statistics = {
        client: client_statistics(
            frame,
            categorical={str(name) for name in (*choices.categorical, *choices.boolean)} - {target},
            numeric={str(name) for name in choices.numeric} - {target},
            client=client,
        )
        for client, frame in fitted.items()
    }
    columns, notes = aggregate(statistics, choices, ignore=(target,))
    seen = merge(said.columns[target] for said in statistics.values())
    rule = target_rule(target, seen, request.positive, request.task)
    schema = Schema(columns, rule, options, tuple(next(iter(frames.values())).columns), drop)
    features = schema.features
    if len(set(features)) < len(features):
        twice = sorted({name for name in features if features.count(name) > 1})
        raise TableError(f"two features would have the same name, {listed(map(repr, twice))}: rename a column")
    if not features:
        raise TableError("no feature is left: every column has the same value in all rows")

    unseen: list[str] = []
    training: dict[str, Pair] = {}
    holdout: dict[str, Pair] = {}
    for client, frame in kept.items():
        train, test = frame[~masks[client]], frame[masks[client]]
        training[client] = (encode_rows(schema, train, client=client), encode_target(rule, train, client=client))
        holdout[client] = (
            encode_rows(schema, test, client=client, unseen=unseen),
            encode_target(rule, test, client=client),
        )
    # Counts over all rows, held out or not: every client has them anyway.
    whole = merge(client_statistics(frame[[target]], client=name).columns[target] for name, frame in kept.items())
    chosen = positive_note(rule, whole, request.positive)
    target_notes = [*([chosen] if chosen else []), *_target_notes(target, request.task, training, seen)]
    notes = (*lost, *notes, *unseen, *target_notes)
    return Tables(training, holdout, features, target, schema, notes, gaps)


def _target_notes(target: str, task: Task, training: Mapping[str, Pair], seen: ColumnStatistics) -> list[str]:
    """Sentences about the target. Raises `TableError` where all clients' rows have the same class."""
    ends = {client: (float(y.min()), float(y.max())) for client, (_, y) in training.items()}
    low, high = min(end[0] for end in ends.values()), max(end[1] for end in ends.values())
    if task == "binary" and low == high:
        found = listed(seen.levels) if seen.levels else f"from {seen.low:g} to {seen.high:g}"
        raise TableError(
            f"target {target!r}: {'every' if low else 'no'} row of any client is positive (the values are {found}): "
            "check positive"
        )
    if task == "numeric":
        if {number(level) for level in seen.levels or ("",)} <= {0.0, 1.0}:
            return [f"The target {target!r} has the values 0 and 1 only: task='binary' may be meant."]
        return []
    classes = {client: "positive" if end[0] else "negative" for client, end in ends.items() if end[0] == end[1]}
    return [f"Client {client!r} has {only} training rows only." for client, only in classes.items()]
