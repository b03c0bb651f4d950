"""What repeated runs say about a mean: Student's t intervals."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean and the ends of its interval."""

    mean: float
    lower: float
    upper: float


def mean_interval(values: ArrayLike) -> Interval:
    """The mean of ``values [n]`` and its two-sided 95 % Student t interval, n - 1 degrees of freedom.

    It takes the values for independent and normal. Of repeated splits of one data set neither is quite true: training
    sets overlap, and the interval is then too short. The ends are NaN for a single value, all is NaN where a value is.
    Raises ``ValueError`` for no values.

    >>> [round(value, 4) for value in mean_interval([0.81, 0.79, 0.83, 0.80])]
    [0.8075, 0.7803, 0.8347]
    """
    from scipy import stats

    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not len(found):
        raise ValueError(f"values must be a vector with at least one number, got the shape {list(found.shape)}")
    mean = float(found.mean())
    if len(found) == 1:
        return Interval(mean, math.nan, math.nan)
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    return Interval(mean, mean - half, mean + half)


def difference_interval(first: ArrayLike, second: ArrayLike) -> Interval:
    """:func:`mean_interval` of ``first - second``, paired: both ``[n]`` in the order of the same splits or seeds.

    Raises ``ValueError`` where they are not equally many.
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape:
        raise ValueError(
            f"paired values must be equally many, got the shapes {list(one.shape)} and {list(other.shape)}"
        )
    return mean_interval(one - other)
