"""Statistics of irregular time series: for each variable, 7 sub-periods x 6 statistics.

The definition is that of the public MIMIC-III benchmark (Harutyunyan et al. 2019): a sub-period is a part of the time
between the *first and the last measurement of that variable* in that stay, not of the 48 hours themselves. Both ends
belong to it. So a variable measured once has that value in all seven, and a variable has either no sub-period or all.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pvi.data.errors import TableError, listed

Array = NDArray[np.float64]
Series = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""One stay: variable -> (hours since admission [k], values [k]), in any order of time."""

STATISTICS = ("mean", "standard deviation", "min", "max", "skewness", "number of measurements")
SUB_PERIODS = {
    "whole": (0.0, 1.0),
    "first 10 %": (0.0, 0.1),
    "first 25 %": (0.0, 0.25),
    "first 50 %": (0.0, 0.5),
    "last 10 %": (0.9, 1.0),
    "last 25 %": (0.75, 1.0),
    "last 50 %": (0.5, 1.0),
}
"""Name -> where it begins and ends, as fractions of the time from a variable's first to its last measurement."""
VARIABLES = (
    "Capillary refill rate",
    "Diastolic blood pressure",
    "Fraction inspired oxygen",
    "Glasgow coma scale eye opening",
    "Glasgow coma scale motor response",
    "Glasgow coma scale total",
    "Glasgow coma scale verbal response",
    "Glucose",
    "Heart Rate",
    "Height",
    "Mean blood pressure",
    "Oxygen saturation",
    "Respiratory rate",
    "Systolic blood pressure",
    "Temperature",
    "Weight",
    "pH",
)
"""The 17 variables of the benchmark, in its order."""
HOURS = 48.0
TOLERANCE = 1e-6
"""Hours by which a measurement may lie outside a sub-period and still count, as in the benchmark."""
LARGEST = 1e100


class Measurements(NamedTuple):
    """Measurements of many stays in any order: the stay's and the variable's place, hours and values, each [k]."""

    stay: NDArray[np.int64]
    variable: NDArray[np.int64]
    hours: Array
    values: Array


def column_names(variables: Sequence[str] = VARIABLES) -> tuple[str, ...]:
    """The names of the columns by variable, then sub-period, then statistic: "Heart Rate, first 10 %, mean"."""
    return tuple(f"{name}, {period}, {what}" for name in variables for period in SUB_PERIODS for what in STATISTICS)


def extract(series: Sequence[Series], variables: Sequence[str] = VARIABLES, hours: float = HOURS) -> Array:
    """The features of n stays, float64 [n, 42 · variables] (714 for 17), in the order of `column_names`.

    Only measurements from 0 to `hours` count. Standard deviations divide by the number of measurements, skewness is
    m3 / m2^1.5 of the central moments, and 0 where all values are equal (or there is one). Without a measurement a
    statistic is NaN and the number of measurements 0.

    Raises `TableError` for an unknown variable, hours and values of different length, and values that are not finite
    or larger than 1e100, naming the stay by its place in `series`, the variable and the measurement's place.
    """
    known = {name: place for place, name in enumerate(variables)}
    pieces = []
    for stay, one in enumerate(series):
        for variable, (times, values) in one.items():
            where = f"stay {stay}, variable {variable!r}"
            if variable not in known:
                raise TableError(f"{where}: not one of the variables {listed(map(repr, variables), 40)}")
            t, x = _numbers(times, values, where)
            pieces.append((stay, known[variable], t, x))
    lengths = np.array([len(piece[2]) for piece in pieces], dtype=np.int64)
    found = Measurements(
        np.repeat(np.array([piece[0] for piece in pieces], dtype=np.int64), lengths),
        np.repeat(np.array([piece[1] for piece in pieces], dtype=np.int64), lengths),
        np.concatenate([np.zeros(0), *(piece[2] for piece in pieces)]),
        np.concatenate([np.zeros(0), *(piece[3] for piece in pieces)]),
    )
    return summarise(found, len(series), len(variables), hours)


def _numbers(times: ArrayLike, values: ArrayLike, where: str) -> tuple[Array, Array]:
    try:
        t, x = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    except ValueError as error:
        raise TableError(f"{where}: {error}") from None
    if t.ndim != 1 or t.shape != x.shape:
        raise TableError(f"{where}: hours of shape {list(t.shape)} for values of shape {list(x.shape)}")
    bad = ~(np.isfinite(t) & (np.abs(x) <= LARGEST))
    for k in np.flatnonzero(bad):
        raise TableError(
            f"{where}, measurement {k}: hour {t[k]}, value {x[k]}; both must be finite: leave out what is not there"
        )
    return t, x


def summarise(found: Measurements, stays: int, variables: int, hours: float = HOURS) -> Array:
    """As `extract`, [stays, 42 · variables], from finite measurements in one long list."""
    inside = (found.hours > -TOLERANCE) & (found.hours < hours + TOLERANCE)
    key = (found.stay * variables + found.variable)[inside]
    t, x = found.hours[inside], found.values[inside]
    order = np.lexsort((t, key))
    key, t, x = key[order], t[order], x[order]
    features = np.full((stays * variables, len(SUB_PERIODS), len(STATISTICS)), np.nan)
    features[:, :, -1] = 0
    groups, starts = np.unique(key, return_index=True)
    sizes = np.diff(np.append(starts, len(key)))
    begin, end = (np.repeat(t[places], sizes) for places in (starts, starts + sizes - 1))
    for place, (low, high) in enumerate(SUB_PERIODS.values()):
        # Ends are counted from the side they belong to, as the benchmark does: whole numbers of hours stay exact.
        left = end - (end - begin) * (1 - low) if high == 1 else begin
        right = begin + (end - begin) * high if low == 0 else end
        chosen = (t > left - TOLERANCE) & (t < right + TOLERANCE)
        features[groups, place] = _statistics(x[chosen], np.searchsorted(groups, key[chosen]), len(groups))
    return features.reshape(stays, variables * len(SUB_PERIODS) * len(STATISTICS))


def _statistics(x: Array, group: NDArray[np.int64], groups: int) -> Array:
    """The statistics [groups, 6] of values sorted by group; each group has at least one."""
    if not groups:
        return np.zeros((0, len(STATISTICS)))
    count = np.bincount(group, minlength=groups)
    starts = np.cumsum(count) - count
    low, high = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
    mean = np.bincount(group, x, groups) / count
    mean = np.clip(mean, low, high)  # rounding may leave the range by a digit
    deviation = np.sqrt(np.bincount(group, (x - mean[group]) ** 2, groups) / count)
    # SciPy calls a spread below the rounding of the mean none as well.
    constant = (low == high) | (deviation <= np.finfo(float).eps * np.abs(mean))
    scale = np.where(constant, 1, deviation)
    skewness = np.bincount(group, ((x - mean[group]) / scale[group]) ** 3, groups) / count
    return np.stack([mean, deviation, low, high, np.where(constant, 0, skewness), count], axis=1)
