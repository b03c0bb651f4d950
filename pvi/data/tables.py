"""Tables of several clients as tensors, encoded alike from statistics that each client computes on its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch

from pvi.data.schema import Schema

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class ClientRows(Mapping[str, Pair]):
    """Clients' training rows, a mapping: name -> (x float64 [n, d], y float64 [n]).

    `holdout` has the held-out rows in the same form (n may be 0), `columns` the names of the d features.
    """

    training: dict[str, Pair]
    holdout: dict[str, Pair]
    columns: tuple[str, ...]

    def __getitem__(self, client: str) -> Pair:
        return self.training[client]

    def __iter__(self) -> Iterator[str]:
        return iter(self.training)

    def __len__(self) -> int:
        return len(self.training)

    # Mapping would compare tensors with ==, which has no truth value.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Tables(ClientRows):
    """Clients' rows of tables, in the files' order.

    `notes` are sentences for the user, `missing` the number of missing feature cells of each client's file.
    """

    target: str
    schema: Schema
    notes: tuple[str, ...]
    missing: dict[str, int]


def describe(tables: Tables) -> pd.DataFrame:
    """One row a client: rows, held-out rows, positives (their share; "target mean" for numbers), missing cells."""
    share = "positives" if tables.schema.target.task == "binary" else "target mean"
    records = {
        client: {
            "rows": len(y),
            "held-out rows": len(tables.holdout[client][1]),
            share: float(torch.cat([y, tables.holdout[client][1]]).mean()),
            "missing cells": tables.missing[client],
        }
        for client, (_, y) in tables.items()
    }
    return pd.DataFrame.from_dict(records, orient="index").rename_axis("client")
