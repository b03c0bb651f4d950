"""Recipes other than the UCI splits: every row once, the counts that each promises, seeds, impossible requests."""

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import breast_cancer, standardised
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from pvi.data import TableError, by_column, homogeneous, k_means, label_shards, leftover, small_large
from pvi.data.partition import dirichlet_by_class, dirichlet_by_client

LABELS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=120)
SEEDS = st.integers(0, 3)
MANY = settings(max_examples=100, deadline=None)


def assert_dealt(parts, rows):
    """Every row exactly once, each part ascending and fit to index anything."""
    assert len(leftover(parts, rows)) == 0
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def counts(parts, labels):
    """Rows of each class by client, [M, K]."""
    _, codes = np.unique(labels, return_inverse=True)
    return np.array([np.bincount(codes[part], minlength=codes.max() + 1) for part in parts])


@MANY
@given(rows=st.integers(1, 200), clients=st.integers(1, 200), seed=SEEDS)
def test_homogeneous(rows, clients, seed):
    if clients > rows:
        with pytest.raises(ValueError, match=f"{clients} clients with 1 or more rows each need {clients} rows, there"):
            homogeneous(rows, clients, seed)
        return
    parts = homogeneous(rows, clients, seed)
    assert_dealt(parts, rows)
    sizes = [len(part) for part in parts]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1
    assert_same(parts, homogeneous(rows, clients, seed))


@MANY
@given(labels=LABELS, clients=st.integers(1, 12), shards=st.integers(1, 4), seed=SEEDS)
def test_label_shards(labels, clients, shards, seed):
    if clients * shards > len(labels):
        with pytest.raises(ValueError, match=f"{clients} clients with {shards} or more rows each"):
            label_shards(labels, clients, shards, seed)
        return
    parts = label_shards(labels, clients, shards, seed)
    assert_dealt(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= shards
    assert_same(parts, label_shards(labels, clients, shards, seed))
    # Where a shard is one row, s rows have s labels at most; a longer one straddles as many as its length allows.
    length = -(-len(labels) // (clients * shards))
    assert ((counts(parts, labels) > 0).sum(1) <= shards * length).all()


@MANY
@given(labels=LABELS, clients=st.integers(1, 12), concentration=st.floats(1e-9, 1e6), seed=SEEDS)
def test_dirichlet_by_client(labels, clients, concentration, seed):
    if clients > len(labels):
        with pytest.raises(ValueError, match="ask for fewer clients"):
            dirichlet_by_client(labels, clients, concentration, seed)
        return
    parts = dirichlet_by_client(labels, clients, concentration, seed)
    assert_dealt(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert_same(parts, dirichlet_by_client(labels, clients, concentration, seed))


@MANY
@given(
    labels=LABELS, clients=st.integers(1, 12), concentration=st.floats(1e-9, 1e6), seed=SEEDS, least=st.integers(0, 3)
)
def test_dirichlet_by_class(labels, clients, concentration, seed, least):
    try:
        parts = dirichlet_by_class(labels, clients, concentration, seed, min_rows=least)
    except ValueError as error:
        if least == 0 or "fewer clients" not in str(error):
            raise
        return
    assert_dealt(parts, len(labels))
    assert min(len(part) for part in parts) >= least
    assert_same(parts, dirichlet_by_class(labels, clients, concentration, seed, min_rows=least))


def test_two_digit_clients():
    # MNIST's class counts are no multiples of 300, those of Fashion-MNIST are.
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    parts = label_shards(y)
    assert_dealt(parts, 60_000)
    found = counts(parts, y)
    assert (found.sum(1) == 600).all()
    assert set(found.ravel().tolist()) <= {0, 300, 600}
    # Two of 200 shards, 20 a digit: a pair is of one digit with probability 19/199; within 5 standard errors.
    same = (found == 600).any(1).mean()
    assert abs(same - 19 / 199) < 5 * np.sqrt(19 / 199 / 100)
    assert not all(map(np.array_equal, parts, label_shards(y, seed=1)))


def test_small_and_large_clients_leave_rows_over_and_say_which():
    y = [0, 1] * 13
    rest = leftover(small_large(y, 4, 0.5), len(y))
    assert len(rest) == 2
    parts = small_large(y, 4, 0.5)
    assert_dealt([*parts, rest], len(y))


def test_k_means_finds_clusters_the_largest_first():
    generator = np.random.default_rng(0)
    centres = generator.permutation(np.repeat([0.0, 10.0, 20.0], [30, 50, 20]))
    x = torch.as_tensor(centres[:, None, None] + generator.normal(size=(100, 2, 3)))
    parts = k_means(x, 3)
    assert_dealt(parts, 100)
    assert [set(centres[part]) for part in parts] == [{10.0}, {0.0}, {20.0}]
    assert_same(parts, k_means(x.numpy(), 3))
    with pytest.raises(ValueError, match=r"clusters of \[50, 30, 20\] rows, one of them below min_rows=25"):
        k_means(x, 3, min_rows=25)


def test_k_means_is_that_of_scikit_learn():
    x, _ = load_breast_cancer(return_X_y=True)
    parts = k_means(standardised(x), 5)
    assert_dealt(parts, 569)
    expected = {len(y) for _, y in breast_cancer(clients=5).values()}
    assert [len(part) for part in parts] == sorted(expected, reverse=True)


def test_equal_rows_make_no_clusters():
    x = np.repeat([[0.0], [1.0]], 5, axis=0)
    with pytest.raises(ValueError, match=r"clusters of \[5, 5, 0\] rows"):
        k_means(x, 3)
    assert [len(part) for part in k_means(x, 3, min_rows=0)] == [5, 5, 0]


def test_by_column():
    table = pd.DataFrame(
        {"age": [61, 54, 70, 48], "ward": [10, 9, 10, None], "hospital": ["b ", "a", "b", "c"]}, index=[7, 7, 3, 1]
    )
    parts = by_column(table, "hospital")
    assert {client: rows.tolist() for client, rows in parts.items()} == {"a": [1], "b": [0, 2], "c": [3]}
    assert_dealt(list(parts.values()), 4)
    assert list(by_column(table, 2)) == ["a", "b", "c"]
    numbered = by_column(table.iloc[:3].astype({"ward": int}), "ward")
    assert list(numbered) == ["9", "10"]
    with pytest.raises(TableError, match=r"no column 'hopital' \(did you mean 'hospital'\?\)"):
        by_column(table, "hopital")
    with pytest.raises(TableError, match="column 'ward', row 4: the client's name is missing"):
        by_column(table, "ward")


def test_row_numbers_index_tensors_arrays_and_frames():
    parts = homogeneous(3, 3)
    for table in (torch.eye(3), np.eye(3)):
        assert table[parts[0]].shape == (1, 3)
    assert pd.DataFrame(np.eye(3)).iloc[parts[0]].shape == (1, 3)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[0, 1], [1, 2]], "row 1 is held 2 times"),
        ([[0, 1], [3]], "row 3 is none of the 3 rows"),
        ({"a": [-1]}, "row -1 is none"),
    ],
)
def test_what_is_no_partition(parts, message):
    with pytest.raises(ValueError, match=message):
        leftover(parts, 3)
