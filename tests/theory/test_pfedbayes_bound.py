"""The bound by hand, its rate, and what it refuses."""

import math

import numpy as np
import pytest

from pvi import theory

ARGUMENTS = {
    "n": 400,
    "num_weights": 100,
    "depth": 2,
    "width": 10,
    "inputs": 3,
    "approximation_errors": [0.1, 0.2, 0.6],
    "delta": 2.0,
    "zeta": 5.0,
    "constants": (2.0, 3.0, 4.0),
}


def bound(**changed):
    return theory.pfedbayes_bound(**{**ARGUMENTS, **changed})


def test_by_hand():
    found = bound()
    r_n = 3 * 100 / 400 * math.log(10) + 100 / 400 * math.log(3 * 2)
    epsilon_n = 400**-0.5 * math.sqrt(3 * 100 * math.log(10) + 100 * math.log(6)) * math.log(400) ** 2
    assert found.r_n == pytest.approx(r_n, rel=1e-14)
    assert found.epsilon_n == pytest.approx(epsilon_n, rel=1e-14)
    assert found.estimation == pytest.approx(2 * epsilon_n**2 + 3 * r_n, rel=1e-14)
    assert found.approximation == pytest.approx(4 / (3 * 5) * 0.9, rel=1e-14)
    assert found.total == found.estimation + found.approximation


def test_the_constants_are_one_unless_said_otherwise():
    found = bound(constants=(1.0, 1.0, 1.0))
    arguments = {name: value for name, value in ARGUMENTS.items() if name != "constants"}
    assert theory.pfedbayes_bound(**arguments) == found
    assert found.estimation == found.epsilon_n**2 + found.r_n


def test_the_estimation_part_falls_with_the_rows_and_rises_with_the_weights():
    # log^{2δ}(n) / n rises until n = exp(2δ) = 55; at 1,000 rows it falls.
    by_rows = [bound(n=n).estimation for n in np.geomspace(1e3, 1e7, 20)]
    assert all(np.diff(by_rows) < 0)
    by_size = [bound(num_weights=size, n=10_000).estimation for size in (10, 100, 1000)]
    assert all(np.diff(by_size) > 0)


def test_clients_and_zeta_bear_on_the_approximation_part_only():
    once, tempered, twice = bound(), bound(zeta=10.0), bound(approximation_errors=[0.1, 0.2, 0.6] * 2)
    assert tempered.estimation == twice.estimation == once.estimation
    assert tempered.approximation == pytest.approx(once.approximation / 2)
    assert twice.approximation == pytest.approx(once.approximation)


def test_a_single_row_knows_nothing_and_says_so():
    assert bound(n=1, num_weights=9, inputs=3).r_n == pytest.approx(9 * 3 * math.log(10))
    assert bound(n=1, num_weights=9, inputs=3).epsilon_n == 0.0  # log 1


@pytest.mark.parametrize(("smoothness", "dimension"), [(0.5, 1), (1, 1), (2, 1), (1, 3), (2, 10)])
def test_at_the_balancing_size_the_bound_is_the_minimax_rate_up_to_logarithms(smoothness, dimension):
    case = {"smoothness": smoothness, "dimension": dimension}
    rows, ratios, delta = np.geomspace(1e2, 1e12, 11), [], 1.5
    for n in rows:
        size = theory.network_size(n, constant=2.0, **case)
        xi = theory.approximation_error(size, **case)
        found = theory.pfedbayes_bound(
            n,
            num_weights=size,
            depth=3,
            width=8,
            inputs=2 * dimension,
            approximation_errors=[xi] * 4,
            delta=delta,
        )
        ratios.append(found.total / theory.minimax_rate(n, **case))
    # Ratio = (log^{2δ} n + 1) 2 (4 log 8 + log(s_0 √(n / T))) + 2^{-2β/d}: exactly, so its growth is that of
    # log^{2δ + 1} n at most, and at least that of log^{2δ} n.
    logs = np.log(rows)
    growth = np.diff(np.log(ratios)) / np.diff(np.log(logs))
    assert np.all(growth < 2 * delta + 1)
    assert np.all(growth > 2 * delta - 0.5)
    exponent = np.diff(np.log(ratios)) / np.diff(logs)  # of n: falls towards 0, as no power of n does
    assert np.all(np.diff(exponent) < 0)
    remainder = 1 - dimension / (2 * smoothness + dimension)
    logarithms = 4 * math.log(8) + np.log(2 * dimension) + 0.5 * (remainder * logs - math.log(2))
    expected = (logs ** (2 * delta) + 1) * 2 * logarithms + 2 ** (-2 * smoothness / dimension)
    np.testing.assert_allclose(ratios, expected, rtol=1e-12)


def test_the_balancing_size_balances():
    case = {"smoothness": 1.5, "dimension": 2}
    for n in (10.0, 1e4, 1e9):
        size = theory.network_size(n, **case)
        assert size / n == pytest.approx(theory.approximation_error(size, **case))
        assert size / n == pytest.approx(theory.minimax_rate(n, **case))
    assert theory.network_size(32, constant=3.0, **case) == pytest.approx(3 * 32**0.4)


def test_weights_are_counted_with_biases():
    assert theory.num_weights([1, 20, 1]) == 61
    assert theory.num_weights([784, 100, 10]) == 784 * 100 + 100 + 100 * 10 + 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": 0.5}, "n must be at least 1, got 0.5"),
        ({"n": math.nan}, "n must be at least 1, got nan"),
        ({"num_weights": 0}, "num_weights must be at least 1, got 0"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"inputs": 0}, "inputs must be at least 1, got 0"),
        ({"zeta": 0.5}, "zeta must be at least 1, got 0.5"),
        ({"delta": 1.0}, "delta must be greater than 1, got 1.0"),
        ({"constants": (1.0, 0.0, 1.0)}, "constants C, C' and C'' must be positive"),
        ({"approximation_errors": []}, "approximation_errors is empty"),
        ({"approximation_errors": [0.1, -0.2]}, "client 1's approximation error must be a square, 0 or more, got -0.2"),
        ({"num_weights": 4000}, r"= 0.949 is less than 1, so its logarithm is negative .* take at most 3600 weights"),
    ],
)
def test_outside_the_theorem(changed, message):
    with pytest.raises(ValueError, match=message):
        bound(**changed)


def test_the_largest_network_the_theorem_knows():
    assert bound(num_weights=3600).r_n == pytest.approx(9 * 3 * math.log(10))  # log(3 √(400 / 3600)) = log 1


@pytest.mark.parametrize("function", [theory.network_size, theory.approximation_error, theory.minimax_rate])
@pytest.mark.parametrize(
    ("size", "smoothness", "dimension", "message"),
    [
        (0, 1, 1, "must be at least 1, got 0"),
        (10, 0, 1, "smoothness must be positive, got 0"),
        (10, 1, math.inf, "dimension must be positive, got inf"),
    ],
)
def test_no_such_rate(function, size, smoothness, dimension, message):
    with pytest.raises(ValueError, match=message):
        function(size, smoothness=smoothness, dimension=dimension)


def test_no_such_network():
    with pytest.raises(ValueError, match=r"at least two numbers, got \[3\]"):
        theory.num_weights([3])
    with pytest.raises(ValueError, match="every width must be at least 1, got 0"):
        theory.num_weights([3, 0, 1])
    with pytest.raises(ValueError, match="constant must be positive, got -1"):
        theory.network_size(10, smoothness=1, dimension=1, constant=-1)
