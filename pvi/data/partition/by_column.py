"""Clients that a table names: one for each value of a column."""

import numpy as np
import pandas as pd

from pvi.data.cells import tidy
from pvi.data.errors import resolve
from pvi.data.partition.dealing import Rows
from pvi.data.sources import split_by


def by_column(table: pd.DataFrame, column: str | int) -> dict[str, Rows]:
    """Row numbers by client: a column (by name, or by position from 0) names each row's client.

    Clients come in the order of their names, numbers by value. Rows are counted from 0, whatever the table's index.
    Every row is dealt. Raises ``TableError`` for a column that there is not, and for a row without a name.

    >>> table = pd.DataFrame({"hospital": ["b", "a", "b"], "age": [61, 54, 70]})
    >>> {client: rows.tolist() for client, rows in by_column(table, "hospital").items()}
    {'a': [1], 'b': [0, 2]}
    """
    names = [str(name).strip() for name in table.columns]
    name = resolve(column if isinstance(column, int) else column.strip(), names, "by_column", headerless=False)
    # Alone and tidy: other columns may be what they like, and its rows are numbered from 1.
    parts = split_by(tidy(table.iloc[:, [names.index(name)]]), name)
    return {client: part.index.to_numpy(dtype=np.int64) - 1 for client, part in parts.items()}
