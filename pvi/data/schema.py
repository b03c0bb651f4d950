"""Everything that is needed to encode a new file exactly like the training files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pvi.data.cells import cells, tidy
from pvi.data.columns import Column, encode_column
from pvi.data.errors import TableError, listed, place
from pvi.data.reading import PARQUET, ReadOptions, read_file
from pvi.data.target import TargetRule, apply_rule

VERSION = 1


@dataclass(frozen=True)
class Schema:
    """How a table becomes numbers: the columns in order, the target's rule, and how the files were read.

    `names`: all columns of the training files in their order, those left out (`ignored`) and the target
    included; a file without a header is matched to them by position.
    """

    columns: tuple[Column, ...]
    target: TargetRule
    options: ReadOptions
    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the d features, in the order of `encode`."""
        return tuple(feature for column in self.columns for feature in column.features)

    def encode(self, frame: pd.DataFrame, *, client: str = "", unseen: list[str] | None = None) -> torch.Tensor:
        """The features of a table's rows, float64 [n, d]; other columns than those of training are ignored.

        Raises `TableError` for a column that is not there, text among numbers, and for levels or missing cells
        that training did not have (unless `unseen` is a list, see `encode_column`).
        """
        return encode_rows(self, tidy(frame, self.options.na, where=place(client)), client=client, unseen=unseen)

    def encode_target(self, frame: pd.DataFrame, *, client: str = "") -> torch.Tensor | None:
        """The target of a table's rows, float64 [n]; None where the table has no such column.

        Raises `TableError` for missing cells and values that the rule does not cover.
        """
        frame = tidy(frame, self.options.na, where=place(client))
        return encode_target(self.target, frame, client=client) if self.target.column in frame.columns else None

    def to_dict(self) -> dict[str, Any]:
        """As nested dictionaries and lists of plain values, ready for JSON."""
        return {"version": VERSION, **asdict(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "Schema":
        """The inverse of `to_dict`, also after a trip through JSON."""
        if data.get("version") != VERSION:
            raise TableError(f"the schema has version {data.get('version')!r}, this program reads {VERSION}")
        return Schema(
            columns=tuple(Column(**_tuples(column)) for column in data["columns"]),
            target=TargetRule(**data["target"]),
            options=ReadOptions(**_tuples(data["options"])),
            names=tuple(data["names"]),
            ignored=tuple(data["ignored"]),
        )


def encode_rows(
    schema: Schema, frame: pd.DataFrame, *, client: str = "", unseen: list[str] | None = None
) -> torch.Tensor:
    """`Schema.encode` for a frame that is tidy already; its index numbers the rows in messages."""
    needed = [column for column in schema.columns if column.features]
    absent = [column.name for column in needed if column.name not in frame.columns]
    if absent:
        raise TableError(
            f"{place(client)}missing columns {listed(map(repr, absent))}; found {listed(frame.columns, 40)}"
        )
    rows = frame.index.to_numpy()
    parts = [
        encode_column(column, cells(frame[column.name]), rows=rows, client=client, unseen=unseen) for column in needed
    ]
    return torch.from_numpy(np.hstack(parts))


def encode_target(rule: TargetRule, frame: pd.DataFrame, *, client: str = "") -> torch.Tensor:
    """The target of the rows of a tidy frame, float64 [n]; errors as `apply_rule`."""
    return torch.from_numpy(apply_rule(rule, cells(frame[rule.column]), rows=frame.index.to_numpy(), client=client))


def _tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}


def read_frame(path: str | Path, schema: Schema) -> pd.DataFrame:
    """A new file as a frame that `schema.encode` takes. It may lack the target and the ignored columns.

    Raises `TableError` as `read_file`, and where a file without a header has another number of columns.
    """
    if schema.options.header or Path(path).suffix.lower() in PARQUET:
        return read_file(path, schema.options)
    frame = read_file(path, replace(schema.options, names=()))
    without = [name for name in schema.names if name != schema.target.column]
    for names in (list(schema.names), without, [name for name in without if name not in schema.ignored]):
        if len(names) == frame.shape[1]:
            return frame.set_axis(names, axis=1)
    raise TableError(
        f"{path}: {frame.shape[1]} columns, but training had {len(schema.names)} ({len(without)} without the target)"
    )
