"""Clients that are alike: rows dealt at random, evenly."""

import numpy as np

from pvi.data.partition.dealing import Rows, check_clients


def homogeneous(rows: int, num_clients: int = 10, seed: int = 0) -> list[Rows]:
    """Row numbers of M clients: 0, ..., ``rows`` - 1 shuffled with the seed and cut in M parts.

    Every row is dealt; sizes differ by one row at most. Raises ``ValueError`` for more clients than rows.

    >>> [len(part) for part in homogeneous(11, num_clients=3)]
    [4, 4, 3]
    """
    check_clients(num_clients, rows)
    order = np.random.default_rng(seed).permutation(rows)
    return [np.sort(part) for part in np.array_split(order, num_clients)]
