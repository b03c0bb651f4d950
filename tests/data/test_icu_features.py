"""Statistics of sub-periods against a plain loop over NumPy, SciPy and pandas."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pvi.data import TableError
from pvi.data.icu import STATISTICS, SUB_PERIODS, VARIABLES, column_names, extract

PERCENT = [("first", 100), ("first", 10), ("first", 25), ("first", 50), ("last", 10), ("last", 25), ("last", 50)]
FINITE = st.floats(-1e4, 1e4).map(lambda value: round(value, 3))


def by_hand(hours: Sequence[float], values: Sequence[float]) -> np.ndarray:
    """[7, 6], from the first and the last measurement of the 48 hours on, both ends included."""
    taken = sorted((t, x) for t, x in zip(hours, values, strict=True) if -1e-6 < t < 48 + 1e-6)
    rows = []
    for side, percent in PERCENT:
        if not taken:
            rows.append([np.nan] * 5 + [0])
            continue
        begin, end = taken[0][0], taken[-1][0]
        length = (end - begin) * percent / 100
        low, high = (begin, begin + length) if side == "first" else (end - length, end)
        x = np.array([x for t, x in taken if low - 1e-6 < t < high + 1e-6])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of values that are nearly equal
            skewness = stats.skew(x) if np.ptp(x) > 0 else 0.0
        rows.append([x.mean(), x.std(), x.min(), x.max(), np.nan_to_num(skewness), len(x)])
    return np.array(rows)


def of_heart_rate(hours: Sequence[float], values: Sequence[float]) -> np.ndarray:
    return extract([{"Heart Rate": (hours, values)}], ("Heart Rate",)).reshape(7, 6)


def test_the_columns() -> None:
    columns = column_names()
    assert len(VARIABLES) == 17
    assert len(columns) == len(set(columns)) == 714
    assert "Heart Rate, first 10 %, mean" in columns
    assert columns[0] == "Capillary refill rate, whole, mean"
    assert columns[:6] == tuple(f"Capillary refill rate, whole, {name}" for name in STATISTICS)
    assert columns[-1] == "pH, last 50 %, number of measurements"


@given(st.lists(st.tuples(st.floats(-1, 50).map(lambda t: round(t, 2)), FINITE), max_size=12))
def test_one_series(measured: list[tuple[float, float]]) -> None:
    hours, values = [t for t, _ in measured], [x for _, x in measured]
    np.testing.assert_allclose(of_heart_rate(hours, values), by_hand(hours, values), rtol=1e-8, atol=1e-7)


def test_many_stays_at_once() -> None:
    rng = np.random.default_rng(0)
    series = []
    for _ in range(60):
        names = rng.permutation(VARIABLES)[: rng.integers(0, 18)]
        series.append({str(name): (rng.uniform(0, 49, k := rng.integers(0, 80)), rng.gamma(2, 9, k)) for name in names})
    features = extract(series)
    assert features.shape == (60, 714)
    for stay, one in enumerate(series):
        expected = [by_hand(*one.get(name, ([], []))).ravel() for name in VARIABLES]
        np.testing.assert_allclose(features[stay], np.concatenate(expected), rtol=1e-10, atol=1e-10)
    assert np.array_equal(extract(series[7:9]), features[7:9], equal_nan=True)


def test_against_pandas() -> None:
    rng = np.random.default_rng(1)
    hours, values = np.sort(rng.uniform(0, 48, 500)), rng.lognormal(size=500)
    described = pd.Series(values[hours <= hours[0] + (hours[-1] - hours[0]) / 4]).describe()
    first_quarter = of_heart_rate(hours, values)[list(SUB_PERIODS).index("first 25 %")]
    np.testing.assert_allclose(first_quarter[[0, 2, 3, 5]], described[["mean", "min", "max", "count"]], rtol=1e-12)
    n = described["count"]
    np.testing.assert_allclose(first_quarter[1], described["std"] * np.sqrt((n - 1) / n), rtol=1e-12)


def test_none_one_and_two_measurements() -> None:
    assert np.isnan(of_heart_rate([], [])[:, :5]).all()
    assert (of_heart_rate([], [])[:, 5] == 0).all()
    assert of_heart_rate([7], [80.0]).tolist() == [[80, 0, 80, 80, 0, 1]] * 7
    both, early, late = [[75, 5, 70, 80, 0, 2]], [[80, 0, 80, 80, 0, 1]], [[70, 0, 70, 70, 0, 1]]
    assert of_heart_rate([7, 9], [80.0, 70.0]).tolist() == both + early * 3 + late * 3
    assert of_heart_rate([7, 7], [80.0, 70.0]).tolist() == both * 7  # twice at one time


def test_both_ends_of_a_sub_period_belong_to_it() -> None:
    counts = of_heart_rate(range(41), np.arange(41.0))[:, 5]
    assert dict(zip(SUB_PERIODS, counts, strict=True)) == {
        "whole": 41,
        "first 10 %": 5,
        "first 25 %": 11,
        "first 50 %": 21,
        "last 10 %": 5,
        "last 25 %": 11,
        "last 50 %": 21,
    }
    # The part is of the variable's own time, from hour 30 to 40, not of the 48 hours.
    assert of_heart_rate([30, 31, 31.01, 40], [1.0, 2.0, 4.0, 8.0])[1].tolist()[:4] == [1.5, 0.5, 1, 2]


def test_the_48_hours() -> None:
    hours, values = [-0.01, 0, 48, 48.01, 90], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert of_heart_rate(hours, values)[0].tolist() == [2.5, 0.5, 2, 3, 0, 2]
    assert extract([{"pH": (hours, values)}], ("pH",), hours=24)[0, 5] == 1


def test_the_order_of_time_is_free() -> None:
    rng = np.random.default_rng(2)
    hours, values = rng.uniform(0, 48, 50), rng.normal(size=50)
    order = np.argsort(hours)
    np.testing.assert_allclose(of_heart_rate(hours, values), of_heart_rate(hours[order], values[order]), rtol=1e-13)


@pytest.mark.parametrize("value", [0.1, 1e-30, 1e15, -37.3])
def test_equal_values_have_no_spread(value: float) -> None:
    whole = of_heart_rate(np.arange(7), np.full(7, value))[0]
    assert whole.tolist() == [value, 0, value, value, 0, 7]


def test_a_large_mean_costs_no_digits() -> None:
    hours, values = np.arange(6.0), np.array([0, 1, 2, 3, 4, 9.0])
    small, large = of_heart_rate(hours, values)[0], of_heart_rate(hours, values + 1e9)[0]
    np.testing.assert_allclose(large[[1, 4]], small[[1, 4]], rtol=1e-6)


def test_no_stays() -> None:
    assert extract([]).shape == (0, 714)
    empty = extract([{}, {"pH": ([], [])}])
    assert empty.shape == (2, 714)
    assert np.nansum(empty) == 0


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (
            {"Haert Rate": ([1], [2])},
            r"stay 1, variable 'Haert Rate': not one of the variables 'Capillary refill rate'",
        ),
        ({"pH": ([1, 2], [7.4])}, r"stay 1, variable 'pH': hours of shape \[2\] for values of shape \[1\]"),
        ({"pH": ([1, 2], [7.4, np.nan])}, "stay 1, variable 'pH', measurement 1: hour 2.0, value nan"),
        ({"pH": ([1, np.inf], [7.4, 7.4])}, "stay 1, variable 'pH', measurement 1: hour inf"),
        ({"pH": ([1], [1e200])}, "measurement 0: hour 1.0, value 1e.200"),
        ({"pH": ([1], ["low"])}, "stay 1, variable 'pH': could not convert string"),
    ],
)
def test_refused(series: dict, message: str) -> None:
    with pytest.raises(TableError, match=message):
        extract([{}, series])
