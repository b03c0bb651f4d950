"""Stays as the tables of clients: rows held out by seed, columns standardised by what the clients say about theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from pvi.data.errors import TableError, listed, place
from pvi.data.icu.scaling import FeatureStatistics, encode, merge, statistics
from pvi.data.icu.stays import Stays
from pvi.data.rows import held_out
from pvi.data.tables import ClientRows, Pair

Scaling = Literal["federation", "client"]


@dataclass(frozen=True, eq=False)
class StayTables(ClientRows):
    """Clients' stays, y = 1 for death.

    `rows` are each client's row numbers in the stays (training, held out), `fitted` the statistics that standardise its
    rows: one and the same for all under "federation". `notes`: sentences about missing values and constant columns,
    after those of the stays.
    """

    rows: dict[str, tuple[np.ndarray, np.ndarray]]
    fitted: dict[str, FeatureStatistics]
    notes: tuple[str, ...]


def stay_tables(
    stays: Stays,
    clients: Sequence[str] | Mapping[str, ArrayLike] | None = None,
    *,
    holdout: float = 0.2,
    seed: int = 0,
    scaling: Scaling = "federation",
) -> StayTables:
    """Each client's stays, standardised; what has no measurement becomes the mean, which is 0.

    `clients`: a name for each stay, or name -> row numbers (of a partition recipe, say; stays that no client has are
    left out); None means the kinds of unit. Each client holds out the fraction `holdout` of its stays, drawn by the
    seed and its name. Means and standard deviations are those of the measured values of all clients' *training* stays,
    merged from counts and sums ("federation"), or of each client's own alone ("client": nothing is sent, and columns
    mean something else at each client).

    Raises `TableError` for clients that do not fit the stays, an unknown unit, and a fraction outside [0, 1).
    """
    if scaling not in ("federation", "client"):
        raise TableError(f"scaling is 'federation' or 'client', not {scaling!r}")
    rows = _rows(stays, stays.unit if clients is None else clients)
    split = {}
    for client, own in rows.items():
        out = held_out(len(own), holdout, seed=seed, client=client)
        split[client] = (own[~out], own[out])
    sent = {client: statistics(stays.features[train]) for client, (train, _) in split.items()}
    fitted = dict.fromkeys(sent, merge(list(sent.values()))) if scaling == "federation" else sent
    notes = [*stays.notes, *_constant(stays, fitted, scaling)]
    for client, own in rows.items():
        gaps = float(np.isnan(stays.features[own]).mean())
        notes.append(
            f"{place(client)}{gaps:.1%} of the cells of {len(own)} stays have no measurement and became the mean of "
            f"{'all clients' if scaling == 'federation' else 'this client'}, 0 after scaling."
        )
        if len(set(stays.died[split[client][0]].tolist())) == 1:
            notes.append(f"{place(client)}all training stays ended alike.")
    pairs = [
        {client: _pair(stays, parts[which], fitted[client]) for client, parts in split.items()} for which in (0, 1)
    ]
    return StayTables(pairs[0], pairs[1], stays.columns, split, fitted, tuple(notes))


def _pair(stays: Stays, rows: np.ndarray, fitted: FeatureStatistics) -> Pair:
    return torch.from_numpy(encode(stays.features[rows], fitted)), torch.from_numpy(stays.died[rows])


def _constant(stays: Stays, fitted: Mapping[str, FeatureStatistics], scaling: Scaling) -> list[str]:
    """Sentences about columns without spread: one for all clients, or one for each."""
    notes = []
    for client, one in list(fitted.items())[: 1 if scaling == "federation" else None]:
        names = [stays.columns[k] for k in np.flatnonzero(one.deviation == 0)]
        whose = "all clients" if scaling == "federation" else f"client {client!r}"
        if names:
            kind = f"{len(names)} columns do not vary in the training stays of {whose} and are 0"
            notes.append(f"{kind}: {listed(map(repr, names))}.")
    return notes


def _rows(stays: Stays, clients: Sequence[str] | Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """Row numbers of each client."""
    if isinstance(clients, Mapping):
        rows = {str(client): np.asarray(own) for client, own in clients.items()}
    else:
        if len(clients) != len(stays):
            raise TableError(f"{len(clients)} clients' names for {len(stays)} stays")
        names = np.array([str(client) for client in clients], dtype=object)
        rows = {client: np.flatnonzero(names == client) for client in sorted(set(names.tolist()))}
    if "" in rows:
        raise TableError(f"stay {stays.records[rows[''][0]]} has no client (its unit is unknown): say clients")
    for client, own in rows.items():
        if own.ndim != 1 or not len(own) or own.dtype.kind not in "iu" or own.min() < 0 or own.max() >= len(stays):
            raise TableError(f"{place(client)}give one or more of the row numbers 0 to {len(stays) - 1}")
    everyone = np.concatenate([np.zeros(0, np.int64), *rows.values()])
    numbers, copies = np.unique(everyone, return_counts=True)
    if (copies > 1).any():
        raise TableError(f"stay {stays.records[numbers[copies.argmax()]]} is dealt {copies.max()} times")
    if not rows:
        raise TableError("no clients")
    return rows
