"""Splits of rows: sizes and class counts of the published recipe, and requests that cannot be met."""

import numpy as np
import pytest
from datasets import pvi_data, uci
from hypothesis import given, settings
from hypothesis import strategies as st

from pvi.data import SPLIT_A, SPLIT_B, small_large
from pvi.data.uci import adult


def adult_training_labels():
    """The published runs' training rows: both official files, shuffled by RandomState(0), the last fifth held out."""
    frame = adult(pvi_data()).frame
    y = (frame["income"] == ">50K").to_numpy().astype(int)[np.random.RandomState(0).permutation(len(frame))]
    return y[: len(y) - len(y) // 5]


def test_published_counts_of_adult():
    y = adult_training_labels()
    assert len(y) == 39_074
    clients = small_large(y, **SPLIT_B)
    assert [(len(rows), y[rows].sum()) for rows in clients[:5]] == [(390, 5)] * 5
    assert [len(rows) for rows in clients[5:]] == [7_424] * 5
    # Dealt at random, and 0.251 is one deal's number: within five standard errors.
    share = np.array([y[rows].mean() for rows in clients[5:]])
    assert (abs(share - 0.251) < 5 * np.sqrt(0.251 * 0.749 / 7_424)).all()
    clients = small_large(y, **SPLIT_A)
    assert [len(rows) for rows in clients] == [3_907] * 10
    assert {y[rows].sum() for rows in clients[:5]} == {3_907 - int(3_907 * (y == 0).mean())}


@pytest.mark.parametrize(("size", "imbalance"), [(0.75, 0.95), (0.7, -3), (0.6, -1.5)])
def test_other_published_splits_of_adult(size, imbalance):
    y = adult_training_labels()
    clients = small_large(y, size_imbalance=size, class_imbalance=imbalance)
    c = (y == 0).mean()
    for rows in clients[:5]:
        assert len(rows) == int((1 - size) * 3_907.4)
        assert (y[rows] == 0).sum() == int(len(rows) * (c + (1 - c) * imbalance))


def test_small_clients_take_the_first_rows_and_the_seed_deals_the_rest():
    y = np.tile([0, 1, 0], 100)
    one, two, again = (small_large(y, 6, 0.5, 0.2, seed=seed) for seed in (0, 1, 0))
    taken = np.concatenate(one[:3])
    for label in (0, 1):
        of_label = np.flatnonzero(y == label)
        np.testing.assert_array_equal(np.sort(taken[y[taken] == label]), of_label[: (y[taken] == label).sum()])
    for place in range(6):
        np.testing.assert_array_equal(one[place], again[place])
        assert np.array_equal(one[place], two[place]) == (place < 3)


@settings(max_examples=200, deadline=None)
@given(
    labels=st.lists(st.sampled_from([0, 1]), min_size=2, max_size=300).filter(lambda y: 0 < sum(y) < len(y)),
    half=st.integers(1, 6),
    size=st.floats(0, 0.99),
    imbalance=st.floats(-4, 1),
    seed=st.integers(0, 5),
)
def test_no_row_twice_and_at_most_one_a_client_left_over(labels, half, size, imbalance, seed):
    try:
        clients = small_large(labels, 2 * half, size, imbalance, seed)
    except ValueError:
        return
    dealt = np.concatenate(clients)
    assert len(set(dealt.tolist())) == len(dealt)
    assert 0 <= len(labels) - len(dealt) <= 2 * half
    assert [len(rows) for rows in clients] == [len(clients[0])] * half + [len(clients[-1])] * half
    assert 0 < len(clients[0]) <= len(clients[-1])


def test_ten_per_cent_of_ten_rows_is_one():
    assert [len(rows) for rows in small_large([0, 1] * 10, 2, 0.9)] == [1, 19]


def test_a_request_that_cannot_be_met_says_why():
    y = uci("credit")["train"][1]
    with pytest.raises(ValueError, match=r"0\.5\d+ of the rows are negative.* · -3 = -0\.\d+.*at least -1\.\d+"):
        small_large(y, size_imbalance=0.7, class_imbalance=-3)
    with pytest.raises(
        ValueError, match=r"each of the 2 small clients needs 6 negative rows of its 6, 12 .* there are 10"
    ):
        small_large([0] * 10 + [1] * 20, 4, 0.2, 1.0)
    with pytest.raises(ValueError, match="4 rows leave the small clients without a row"):
        small_large([0, 1, 0, 1], 4, 0.5)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 1, 2], {}, "labels must be a vector of 0"),
        ([-1, 1], {}, "labels must be a vector of 0"),
        ([1, 1], {}, "at least one row of each"),
        ([], {}, "at least one row of each"),
        ([[0, 1]], {}, "labels must be a vector"),
        ([0.0, float("nan"), 1.0], {}, "labels must be a vector"),
        ([0, 1], {"num_clients": 5}, "even number"),
        ([0, 1], {"num_clients": 0}, "even number"),
        ([0, 1], {"size_imbalance": 1.0}, "size_imbalance must be at least 0"),
        ([0, 1], {"size_imbalance": float("nan")}, "size_imbalance must be at least 0"),
        ([0, 1], {"class_imbalance": 1.5}, "class_imbalance must be at most 1"),
        ([0, 1], {"class_imbalance": float("nan")}, "class_imbalance must be at most 1"),
    ],
)
def test_bad_arguments(labels, options, message):
    with pytest.raises(ValueError, match=message):
        small_large(labels, **options)
