"""Scaling from the clients' sums equals scaling of the pooled rows; a gap is the mean."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from pvi.data import TableError
from pvi.data.icu import encode, merge, statistics


@pytest.fixture
def rows() -> np.ndarray:
    """[300, 8] with gaps; columns of different size, one constant, one empty, one with a single value."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 8)) * np.logspace(-2, 4, 8) + np.logspace(2, -2, 8)
    x[rng.random(x.shape) < 0.4] = np.nan
    x[:, 2] = 0.1
    x[:, 5] = np.nan
    x[1:, 6] = np.nan
    x[0, 6] = 5
    return x


@pytest.mark.parametrize("clients", [1, 2, 7, 300])
def test_merged_is_pooled(rows: np.ndarray, clients: int) -> None:
    merged = merge([statistics(part) for part in np.array_split(rows, clients)])
    pooled = statistics(rows)
    assert merged.count.tolist() == pooled.count.tolist() == (~np.isnan(rows)).sum(0).tolist()
    varied = [0, 1, 3, 4, 7]
    np.testing.assert_allclose(encode(rows, merged), encode(rows, pooled), atol=1e-10)
    scaled = StandardScaler().fit_transform(rows[:, varied])  # it leaves gaps alone
    np.testing.assert_allclose(encode(rows, merged)[:, varied], np.nan_to_num(scaled), atol=1e-10)


def test_gaps_and_constant_columns_are_0(rows: np.ndarray) -> None:
    fitted = merge([statistics(rows[:100]), statistics(rows[100:])])
    assert np.flatnonzero(fitted.deviation == 0).tolist() == [2, 5, 6]
    x = encode(np.array([[np.nan] * 8, [1e3] * 8]), fitted)
    assert (x[0] == 0).all()
    assert (x[1] == 0).tolist() == [False, False, True, False, False, True, True, False]


def test_a_client_without_values_changes_nothing(rows: np.ndarray) -> None:
    merged = merge([statistics(rows), statistics(np.full((5, 8), np.nan)), statistics(np.zeros((0, 8)))])
    np.testing.assert_array_equal(merged.squares, statistics(rows).squares)
    np.testing.assert_array_equal(merged.mean, statistics(rows).mean)


def test_refused(rows: np.ndarray) -> None:
    with pytest.raises(TableError, match="the clients have 8, 3 columns"):
        merge([statistics(rows), statistics(rows[:, :3])])
    with pytest.raises(TableError, match="no statistics"):
        merge([])
    with pytest.raises(TableError, match="rows of 3 columns for statistics of 8"):
        encode(rows[:, :3], statistics(rows))
    with pytest.raises(TableError, match=r"must be \[rows, columns\], got the shape \[8\]"):
        statistics(rows[0])
    rows[4, 1] = -np.inf
    with pytest.raises(TableError, match="row 4, column 1: the value is infinite"):
        statistics(rows)
