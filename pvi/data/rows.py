"""What a client does with its rows before it speaks: missing cells, and the rows it holds out."""

import zlib
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pvi.data.aggregation import Missing
from pvi.data.errors import TableError, listed, place


def check_missing(frames: Mapping[str, pd.DataFrame]) -> None:
    """Raise `TableError` with the number of missing cells of each column and client, if there are any."""
    found = []
    for client, frame in frames.items():
        counts = frame.isna().sum()
        if counts.any():
            columns = listed((f"{name} {count}" for name, count in counts[counts > 0].items()), 20)
            found.append(f"client {client!r}: {columns}")
    if found:
        raise TableError(
            f"missing cells: {'; '.join(found)}. Say missing='drop' (rows), 'mean' or 'indicator' (--missing), or "
            "leave columns out with drop"
        )


def handle_missing(
    frames: Mapping[str, pd.DataFrame], missing: Missing
) -> tuple[dict[str, pd.DataFrame], tuple[str, ...]]:
    """The rows to go on with, and a sentence for each client that lost some.

    Raises `TableError` for missing cells under "error", and for a client left without rows under "drop".
    """
    if missing == "error":
        check_missing(frames)
    if missing != "drop":
        return dict(frames), ()
    kept, notes = {}, []
    for client, frame in frames.items():
        kept[client] = frame[frame.notna().all(axis=1)]
        lost = len(frame) - len(kept[client])
        if len(kept[client]) == 0:
            worst = frame.isna().sum().sort_values(ascending=False)
            columns = listed((f"{name} {count}" for name, count in worst[worst > 0].items()), 8)
            raise TableError(
                f"{place(client)}no row is left, each of its {lost} has a missing cell ({columns}): leave columns out "
                "with drop, or say missing='indicator'"
            )
        if lost:
            notes.append(f"Client {client!r}: {lost} of {len(frame)} rows were dropped for missing cells.")
    return kept, tuple(notes)


def held_out(rows: int, fraction: float, *, seed: int, client: str) -> np.ndarray:
    """Which rows are held out, bool [rows]: the last ⌊fraction · rows⌋ of a shuffle.

    The stream of random numbers depends on the seed and the client's name only, so that one client more, or
    another order of clients, changes nobody's rows. Raises `TableError` for a fraction outside [0, 1).
    """
    if not 0 <= fraction < 1:
        raise TableError(f"holdout must be at least 0 and below 1, not {fraction}")
    if seed < 0:
        raise TableError(f"seed must not be negative, not {seed}")
    order = np.random.default_rng([seed, zlib.crc32(client.encode())]).permutation(rows)
    mask = np.zeros(rows, dtype=bool)
    # The small number undoes the rounding of products such as 0.29 · 100.
    mask[order[rows - int(fraction * rows + 1e-9) :]] = True
    return mask
