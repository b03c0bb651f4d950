"""The Dirichlet recipes' proportions: their means and spreads by theory, and what is left of them at the extremes."""

import numpy as np
import pytest

from pvi.data import dirichlet_by_class, dirichlet_by_client

SEEDS = 200
STANDARD_ERRORS = 5.0
"""Chance failures are then rarer than one in a million numbers compared."""
COUNTS = np.array([500, 300, 200])
Y = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c"], COUNTS))


def counts(parts):
    return np.array([[(Y[part] == name).sum() for name in "abc"] for part in parts])


def assert_mean(draws, expected):
    """The mean of independent draws is what it should be."""
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    assert (abs(draws.mean(0) - expected) <= STANDARD_ERRORS * error).all()


def first_clients(**options):
    """Class proportions of the first of two clients, over many seeds ``[SEEDS, 3]``."""
    deals = [counts(dirichlet_by_client(Y, num_clients=2, seed=seed, **options)) for seed in range(SEEDS)]
    return np.array([found[0] / found[0].sum() for found in deals])


@pytest.mark.parametrize("concentration", [0.1, 1.0, 100.0])
def test_by_client_mean_proportions_are_the_classes_shares(concentration):
    assert_mean(first_clients(concentration=concentration), COUNTS / 1000)


@pytest.mark.parametrize(("prior", "total"), [(None, 20.0), (np.ones(4), 80.0), ([0.25] * 4, 20.0)])
def test_by_client_spread_is_that_of_the_dirichlet(prior, total):
    # One client among fifty of twenty rows each, four equal classes: classes hardly run out, so that its counts are
    # Dirichlet-multinomial with parameters that sum to ``total``.
    y = np.arange(1000) % 4
    drawn = [np.bincount(y[dirichlet_by_client(y, 50, 20.0, seed, prior)[0]], minlength=4) for seed in range(2 * SEEDS)]
    assert_mean(np.square(np.array(drawn) - 5.0), 20 * 0.25 * 0.75 * (20 + total) / (1 + total))


def test_by_client_equal_to_the_whole_at_large_concentrations():
    found = counts(dirichlet_by_client(Y, num_clients=5, concentration=1e9))
    # Multinomial counts of 200 rows: within five standard deviations.
    shares = COUNTS / 1000
    assert (abs(found - 200 * shares) < STANDARD_ERRORS * np.sqrt(200 * shares * (1 - shares))).all()


def test_by_client_one_class_each_at_small_concentrations():
    # Each of two clients wants one of two classes: all of it where the other wants the other, which is half of the
    # deals; else both get half, and then what is left.
    deals = [np.array(dirichlet_by_client(np.arange(40) % 2, 2, 1e-9, seed)) % 2 for seed in range(SEEDS)]
    ones = np.array([found.sum(1) for found in deals])
    assert set(ones.ravel().tolist()) == {0, 10, 20}
    pure = ones[:, 0] != 10
    assert abs(pure.mean() - 0.5) < STANDARD_ERRORS * np.sqrt(0.25 / SEEDS)


@pytest.mark.parametrize("concentration", [0.1, 1.0, 100.0])
def test_by_class_proportions_are_dirichlet(concentration):
    drawn = np.array(
        [counts(dirichlet_by_class(Y, 4, concentration, seed=seed, min_rows=0))[0] / COUNTS for seed in range(SEEDS)]
    )
    assert_mean(drawn, 0.25)
    # Var of one of four shares; rounding to rows is below a tenth of a standard deviation even at α = 100.
    variance = 0.25 * 0.75 / (4 * concentration + 1)
    assert_mean(np.square(drawn - 0.25), variance + 1e-6)


def test_by_class_extremes():
    assert (abs(counts(dirichlet_by_class(Y, 4, 1e9)) - COUNTS / 4) <= 1).all()
    # Each class goes to one client; what is left of the others is rounding.
    found = counts(dirichlet_by_class(Y, 4, 1e-9, min_rows=0))
    assert (found.max(0) == COUNTS).all()


def test_by_class_least_rows_are_kept():
    sizes = [len(part) for seed in range(50) for part in dirichlet_by_class(Y, 8, 0.3, seed=seed, min_rows=10)]
    assert min(sizes) >= 10
    free = [len(part) for seed in range(50) for part in dirichlet_by_class(Y, 8, 0.3, seed=seed, min_rows=0)]
    assert min(free) < 10
