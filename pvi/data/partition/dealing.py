"""What all recipes share: checks of what they are asked for, and rows dealt by counts."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Rows = NDArray[np.int64]
"""Row numbers from 0, ascending. They index torch tensors, NumPy arrays and ``frame.iloc`` alike."""
Labels = ArrayLike | Tensor
Parts = Sequence[Rows] | Mapping[str, Rows]
"""Row numbers of clients, in order or by name."""


class Classes(NamedTuple):
    """The distinct labels in order ``[K]``, each row's place among them ``[n]``, and their numbers of rows ``[K]``."""

    values: NDArray[Any]
    codes: Rows
    counts: Rows


def as_array(values: Labels) -> NDArray[Any]:
    """Tensors (of any device) and sequences as an array."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def classes(labels: Labels) -> Classes:
    """The classes of a vector of labels (numbers or words); raises ``ValueError`` for other shapes, none, and NaN."""
    y = as_array(labels)
    if y.ndim != 1 or not len(y):
        raise ValueError(f"labels must be a vector with an element a row, got the shape {list(y.shape)}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"the label of row {int((~np.isfinite(y)).argmax())} is not finite; leave such rows out")
    values, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    return Classes(values, codes.astype(np.int64), counts.astype(np.int64))


def check_clients(num_clients: int, rows: int, least: int = 1) -> None:
    """Raise ``ValueError`` unless there are clients, and rows enough for ``least`` each."""
    if num_clients < 1:
        raise ValueError(f"num_clients must be at least 1, got {num_clients}")
    if least < 0:
        raise ValueError(f"min_rows must not be negative, got {least}")
    if num_clients * least > rows:
        raise ValueError(
            f"{num_clients} clients with {least} or more rows each need {num_clients * least} rows, there are {rows}; "
            "ask for fewer clients"
        )


def check_concentration(concentration: float) -> None:
    """Raise ``ValueError`` unless it is positive and finite."""
    if not concentration > 0 or not math.isfinite(concentration):
        raise ValueError(
            f"concentration must be positive and finite, got {concentration}: small ones make clients unequal, large "
            "ones alike"
        )


def deal(found: Classes, counts: Rows, generator: np.random.Generator) -> list[Rows]:
    """Rows at random, so that client m gets ``counts[m, k]`` of class k; the counts of a class sum to all its rows."""
    dealt: list[list[Rows]] = [[] for _ in counts]
    for place in range(len(found.values)):
        rows = generator.permutation(np.flatnonzero(found.codes == place))
        for hand, part in zip(dealt, np.split(rows, counts[:, place].cumsum()[:-1]), strict=True):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in dealt]


def leftover(parts: Parts, rows: int) -> Rows:
    """The rows among 0, ..., ``rows`` - 1 that no client holds.

    Only :func:`small_large` leaves any, as the published recipe does. Raises ``ValueError`` where two clients hold the
    same row, or one is out of range.

    >>> leftover([np.array([0, 2]), np.array([3])], rows=5).tolist()
    [1, 4]
    """
    hands = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
    held = np.concatenate([np.zeros(0, np.int64), *hands])
    outside = held[(held < 0) | (held >= rows)]
    if len(outside):
        raise ValueError(f"row {outside[0]} is none of the {rows} rows")
    copies = np.bincount(held, minlength=rows)
    if (copies > 1).any():
        raise ValueError(f"row {copies.argmax()} is held {copies.max()} times: clients must not share rows")
    return np.flatnonzero(copies == 0)
