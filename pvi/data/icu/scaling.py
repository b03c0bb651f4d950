"""Means and deviations of columns with gaps, merged from what each client says about its own training rows.

Only counts and sums travel. The sum of squares is about the client's own mean, as in `pvi.data.statistics`: the same
information as the plain sum of squares, without its loss of digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pvi.data.errors import TableError

Array = NDArray[np.float64]
ROUNDING = 1e-12
"""A deviation below this fraction of the mean is the rounding of equal values."""


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """One client's message, or several once merged: for each of d columns the values that are there, each [d].

    `count` of them, `total` their sum, `squares` the sum of their squares about their own mean.
    """

    count: NDArray[np.int64]
    total: Array
    squares: Array

    @property
    def mean(self) -> Array:
        """The mean of each column [d], 0 without a value."""
        return self.total / np.maximum(self.count, 1)

    @property
    def deviation(self) -> Array:
        """The standard deviation of each column [d] (divided by the count), 0 for columns with one value or none."""
        deviation = np.sqrt(self.squares / np.maximum(self.count, 1))
        return np.where(deviation <= ROUNDING * np.abs(self.mean), 0, deviation)


def statistics(features: ArrayLike) -> FeatureStatistics:
    """What a client sends: counts and sums of its rows [n, d], where NaN is a missing value.

    Raises `TableError` for another shape and for infinite values, naming row and column by place.
    """
    x = _checked(features)
    there = ~np.isnan(x)
    count = there.sum(0)
    total = np.where(there, x, 0).sum(0)
    centred = np.where(there, x - total / np.maximum(count, 1), 0)
    return FeatureStatistics(count, total, (centred**2).sum(0))


def merge(parts: Sequence[FeatureStatistics]) -> FeatureStatistics:
    """The statistics of all clients' rows from those of each; equal to those of the pooled rows.

    Raises `TableError` for none, and for clients with different numbers of columns.
    """
    if not parts:
        raise TableError("no statistics to merge: give those of one client or more")
    widths = [len(part.count) for part in parts]
    if len(set(widths)) > 1:
        raise TableError(f"the clients have {', '.join(map(str, widths))} columns; all must have the same")
    count = np.sum([part.count for part in parts], axis=0)
    total = np.sum([part.total for part in parts], axis=0)
    mean = total / np.maximum(count, 1)
    between = [part.count * (part.mean - mean) ** 2 for part in parts]
    return FeatureStatistics(count, total, np.sum([part.squares for part in parts] + between, axis=0))


def encode(features: ArrayLike, fitted: FeatureStatistics) -> Array:
    """Rows [n, d] standardised: (x - mean) / deviation. A missing value becomes the mean, which is 0.

    A column whose fitted deviation is 0 is 0 everywhere. Raises `TableError` for another number of columns and for
    infinite values.
    """
    x = _checked(features)
    if x.shape[1] != len(fitted.count):
        raise TableError(f"rows of {x.shape[1]} columns for statistics of {len(fitted.count)}")
    deviation = fitted.deviation
    scaled = (x - fitted.mean) / np.where(deviation > 0, deviation, 1)
    return np.where(np.isnan(x) | (deviation == 0), 0, scaled)


def _checked(features: ArrayLike) -> Array:
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2:
        raise TableError(f"features must be [rows, columns], got the shape {list(x.shape)}")
    if np.isinf(x).any():
        row, column = np.argwhere(np.isinf(x))[0]
        raise TableError(f"row {row}, column {column}: the value is infinite; NaN means missing")
    return x
