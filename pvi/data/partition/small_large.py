"""Small and large clients with unequal shares of positives: the UCI splits of the PVI paper."""

from collections.abc import Sequence
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPLIT_A = {"size_imbalance": 0.0, "class_imbalance": 0.0}
"""Split A of the PVI paper: clients of one size and one share of positives."""

SPLIT_B = {"size_imbalance": 0.9, "class_imbalance": 0.95}
"""Split B of the PVI paper: small clients with hardly a positive row, and large ones."""


def small_large(
    labels: Sequence[Any] | NDArray[Any],
    num_clients: int = 10,
    size_imbalance: float = 0.0,
    class_imbalance: float = 0.0,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Row numbers of M clients, half of them small, half large (Ashman et al. 2022, E.1; Sharma et al. 2019).

    `labels` [n] are 0 (negative) or 1 (positive). With ρ = `size_imbalance` in [0, 1), κ = `class_imbalance` <= 1 and
    c the share of negatives, the small clients come first and hold floor((1-ρ) n/M) rows each, of which a share
    c + (1-c) κ is negative (rounded down); they take the first rows of each class in the order of `labels`. What is
    left is shuffled with the seed and dealt to the large clients, floor((1+ρ) n/M) rows each. No row is in two
    clients; because of the floors up to M rows, the last of the shuffled, are in none: `leftover` names them.

    Raises `ValueError` where M is odd, ρ or κ is out of range, labels are not 0 and 1, or rows do not suffice.

    >>> labels = [0, 0, 0, 1] * 25
    >>> clients = small_large(labels, num_clients=4, size_imbalance=0.6, class_imbalance=0.5)
    >>> [len(rows) for rows in clients]
    [10, 10, 40, 40]
    >>> clients[0].tolist()  # 8 negatives (a share of 0.75 + 0.25 · 0.5, rounded down) and 2 positives
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    y = np.asarray(labels)
    if y.ndim != 1 or set(np.unique(y).tolist()) != {0, 1}:
        raise ValueError("labels must be a vector of 0 (negative) and 1 (positive) with at least one row of each")
    if num_clients < 2 or num_clients % 2:
        raise ValueError(f"num_clients must be an even number, half small and half large, not {num_clients}")
    if not 0 <= size_imbalance < 1:
        raise ValueError(f"size_imbalance must be at least 0 and below 1, not {size_imbalance}")
    if not class_imbalance <= 1:
        raise ValueError(f"class_imbalance must be at most 1, not {class_imbalance}")
    request = f"{num_clients} clients, size_imbalance {size_imbalance}, class_imbalance {class_imbalance}"
    half, negative, positive = num_clients // 2, np.flatnonzero(y == 0), np.flatnonzero(y == 1)
    small, large = (_floor((1 + sign * size_imbalance) * len(y) / num_clients) for sign in (-1, 1))
    if small < 1:
        raise ValueError(f"{request}: {len(y)} rows leave the small clients without a row; ask for fewer clients")
    own = len(negative) / len(y)
    share = own + (1 - own) * class_imbalance
    if share < 0:
        lowest = -own / (1 - own)
        raise ValueError(
            f"{request}: {own:.3f} of the rows are negative, so that a small client's share would be {own:.3f} + "
            f"{1 - own:.3f} · {class_imbalance} = {share:.3f}; class_imbalance must be at least {lowest:.3f}"
        )
    wanted = (_floor(small * share), small - _floor(small * share))
    for name, count, rows in zip(("negative", "positive"), wanted, (negative, positive), strict=True):
        if half * count > len(rows):
            raise ValueError(
                f"{request}: each of the {half} small clients needs {count} {name} rows of its {small}, "
                f"{half * count} together, but there are {len(rows)}; choose a class_imbalance nearer to 0"
            )
    of_negative, of_positive = wanted
    clients = [
        np.sort(
            np.concatenate(
                [negative[k * of_negative : (k + 1) * of_negative], positive[k * of_positive : (k + 1) * of_positive]]
            )
        )
        for k in range(half)
    ]
    rest = np.concatenate([positive[half * of_positive :], negative[half * of_negative :]])
    rest = np.random.default_rng(seed).permutation(rest)
    return clients + [np.sort(rest[k * large : (k + 1) * large]) for k in range(half)]


def _floor(value: float) -> int:
    """Floor, where 0.999999999999 (ten per cent of ten, in floating point) counts as 1."""
    return floor(value + 1e-9)
