"""Clients with some classes each and test rows of their own: published counts, who holds what, impossible requests."""

from collections import Counter

import numpy as np
import pytest
import torch
from datasets import pvi_data
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from pvi.data import images, label_skew, leftover
from pvi.data.partition import LabelSkew

MNIST = np.repeat(np.arange(10), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])
"""The labels of its 70,000 images, sorted."""
CIFAR10 = np.repeat(np.arange(10), 6000)
PUBLISHED = [
    *[(MNIST, 10, sizes) for sizes in ((50, 950), (200, 800), (900, 300))],
    *[(CIFAR10, 20, sizes) for sizes in ((25, 475), (100, 400), (450, 150))],
]


def counts(parts, labels):
    """Rows of each class by client, [M, K]."""
    _, codes = np.unique(labels, return_inverse=True)
    return np.array([np.bincount(codes[part], minlength=codes.max() + 1) for part in parts])


def assert_split(parts, labels, clients, each, sizes):
    """No row twice, rows ascending, ``each`` classes a client, all classes alike, the sizes asked for."""
    leftover([*parts.train, *parts.test], len(labels))  # refuses rows held twice
    for rows in (*parts.train, *parts.test):
        assert rows.dtype == np.int64
        assert (np.diff(rows) > 0).all()
    train, test = counts(parts.train, labels), counts(parts.test, labels)
    held = train > 0
    assert held.shape == (clients, len(set(np.asarray(labels).tolist())))
    assert (held.sum(1) == each).all()
    assert (held.sum(0) == clients * each // held.shape[1]).all()
    np.testing.assert_array_equal(train, sizes[0] * held)
    np.testing.assert_array_equal(test, sizes[1] * held)


def assert_same(one, other):
    for first, second in zip((*one.train, *one.test), (*other.train, *other.test), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("assignment", ["balanced", "two-types"])
@pytest.mark.parametrize(("labels", "clients", "sizes"), PUBLISHED)
def test_published_counts(labels, clients, sizes, assignment):
    y = np.random.default_rng(0).permutation(labels)
    parts = label_skew(y, clients, 5, *sizes, seed=3, assignment=assignment)
    assert_split(parts, y, clients, 5, sizes)
    assert [len(rows) for rows in parts.train] == [5 * sizes[0]] * clients
    assert [len(rows) for rows in parts.test] == [5 * sizes[1]] * clients
    if assignment == "two-types":
        for client, rows in enumerate(parts.train):
            assert set(y[rows]) == (set(range(5)) if client < clients // 2 else set(range(5, 10)))


@pytest.mark.slow
def test_the_official_images():
    both = images.joined(images.mnist(pvi_data()), images.mnist(pvi_data(), "test"))
    assert both.y.bincount().tolist() == np.bincount(MNIST).tolist()
    parts = label_skew(both.y, 10, 5, 900, 300)
    assert_split(parts, both.y.numpy(), 10, 5, (900, 300))
    assert both.x[parts.train[0]].shape == (4500, 784)


@settings(max_examples=100, deadline=None)
@given(
    number=st.integers(1, 7),
    each=st.integers(1, 7),
    times=st.integers(1, 3),
    sizes=st.tuples(st.integers(1, 3), st.integers(0, 3)),
    spare=st.integers(0, 4),
    seed=st.integers(0, 3),
)
def test_balanced_for_all_numbers(number, each, times, sizes, spare, seed):
    each = min(each, number)
    clients = times * number // np.gcd(number, each)
    labels = np.tile(np.arange(number), clients * each // number * sum(sizes) + spare)
    parts = label_skew(labels, clients, each, *sizes, seed=seed)
    assert isinstance(parts, LabelSkew)
    assert_split(parts, labels, clients, each, sizes)
    assert_same(parts, label_skew(torch.as_tensor(labels), clients, each, *sizes, seed=seed))
    assert len(leftover([*parts.train, *parts.test], len(labels))) == number * spare


def test_every_assignment_is_as_likely():
    # There are 90 4 x 4 tables of zeros and ones with two ones in each row and column.
    labels = np.tile(np.arange(4), 2)
    drawn = Counter(
        tuple((counts(label_skew(labels, 4, 2, 1, 0, seed).train, labels) > 0).ravel().tolist()) for seed in range(900)
    )
    assert len(drawn) == 90
    assert chisquare(list(drawn.values())).pvalue > 1e-3


def test_seeds_deal_classes_and_rows():
    y = np.tile(np.arange(10), 120)
    small, other = (label_skew(y, 10, 5, 5, 15, seed=seed) for seed in (0, 1))
    assert (counts(small.train, y) > 0).tolist() != (counts(other.train, y) > 0).tolist()
    # The sizes leave the assignment as it is.
    medium = label_skew(y, 10, 5, 10, 10, seed=0)
    np.testing.assert_array_equal(counts(small.train, y) > 0, counts(medium.train, y) > 0)
    # Two types hold the same classes whatever the seed, but not the same rows.
    one, two = (label_skew(y, 10, 5, 5, 15, seed=seed, assignment="two-types") for seed in (0, 1))
    np.testing.assert_array_equal(counts(one.train, y), counts(two.train, y))
    assert not np.array_equal(one.train[0], two.train[0])


def test_types_are_consecutive_groups_of_labels_in_words_too():
    y = np.array(list("fedcba") * 4)
    parts = label_skew(y, 6, 2, 1, 1, assignment="two-types")
    assert [sorted(set(y[rows])) for rows in parts.train] == [["a", "b"]] * 2 + [["c", "d"]] * 2 + [["e", "f"]] * 2
    assert_split(parts, y, 6, 2, (1, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [[0, 1]]}, "labels must be a vector with an element a row"),
        ({"num_clients": 0}, "num_clients must be at least 1, got 0"),
        ({"num_clients": 7, "labels_per_client": 3}, "7 clients with 3 of 10 classes each: 21 is no multiple of 10"),
        ({"labels_per_client": 11}, "labels_per_client must be from 1 to 10, the number of classes, got 11"),
        ({"labels_per_client": 0}, "labels_per_client must be from 1 to 10"),
        ({"train_per_class": 0}, "train_per_class must be at least 1 and test_per_class at least 0, got 0 and 950"),
        ({"test_per_class": -1}, "at least 0, got 50 and -1"),
        ({"assignment": "three"}, "assignment is 'balanced' or 'two-types', not 'three'"),
        ({"labels_per_client": 3, "assignment": "two-types"}, "groups of labels_per_client: 3 divides no 10"),
        (
            {"train_per_class": 900, "test_per_class": 500},
            r"class 0 has 6903 rows, its 5 clients need 7000 \(900 \+ 500 each\); ask for fewer rows a class",
        ),
        ({"train_per_class": 900, "test_per_class": 363}, r"class 5 has 6313 rows, its 5 clients need 6315"),
    ],
)
def test_splits_that_cannot_be_had(options, message):
    with pytest.raises(ValueError, match=message):
        label_skew(**{"labels": MNIST, **options})
