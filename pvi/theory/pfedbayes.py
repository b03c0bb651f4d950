"""pFedBayes' bound on the generalisation error, and its rate: Zhang et al. (2022), section 3.

N clients with n rows each fit Bayesian networks of T weights: L hidden layers of M units, s_0 inputs. The paper's
symbols: n rows a client, T ``num_weights``, L ``depth``, M ``width``, s_0 ``inputs``, β ``smoothness`` (the truths are
β-Hölder), d ``dimension`` (of the data's support). The paper's constants are not known, so every value here is a rate:
compare values at different n, T, ζ; none is a number of errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Bound:
    """C ε_n² + C' r_n + C'' / (N ζ) Σ_i ξ_i, and its parts, up to the constants; see :func:`pfedbayes_bound`."""

    r_n: float
    epsilon_n: float
    estimation: float
    """C ε_n² + C' r_n: what n rows cannot tell about T weights."""
    approximation: float
    """C'' / (N ζ) Σ_i ξ_i: what networks of T weights cannot express."""

    @property
    def total(self) -> float:
        """Both parts."""
        return self.estimation + self.approximation


def pfedbayes_bound(
    n: float,
    *,
    num_weights: float,
    depth: int,
    width: int,
    inputs: int,
    approximation_errors: Sequence[float],
    delta: float = 1.1,
    zeta: float = 1.0,
    constants: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Bound:
    """The bound on (1/N) Σ_i ∫ d²(P_θ, P_i) q_i(dθ), which holds with probability tending to 1 as n grows.

    r_n = ((L + 1) T / n) log M + (T / n) log(s_0 √(n / T)) and ε_n² = r_n log^{2δ}(n) for a δ > 1. d² is the squared
    Hellinger distance E_x[1 - exp(-(f_θ(x) - f_i(x))² / (8 σ²))], at most 1. ``approximation_errors`` holds one
    ξ_i = inf_θ sup_x (f_θ(x) - f_i(x))² a client, over networks of this size with bounded weights.

    ``constants`` are the paper's C, C' and C''. Nobody knows them (C' and C'' even diverge with n),
    so with the default, 1 each, the value says how the bound grows and no number of errors: it may well exceed 1.

    >>> few, many = (
    ...     pfedbayes_bound(n, num_weights=61, depth=1, width=20, inputs=1, approximation_errors=[0.1, 0.3])
    ...     for n in (100, 10_000)
    ... )
    >>> round(few.r_n, 3), round(many.r_n, 4), many.approximation
    (3.806, 0.0521, 0.2)

    Raises ``ValueError`` for arguments outside the theorem: n < 1, T, M, s_0, L < 1, δ ≤ 1, ζ < 1, no client or a
    negative error, a constant that is not positive, and s_0 √(n / T) < 1, where the logarithm is negative.
    """
    for label, value in (("n", n), ("num_weights", num_weights), ("depth", depth), ("width", width)):
        _at_least_one(label, value)
    _at_least_one("inputs", inputs)
    _at_least_one("zeta", zeta)
    if not (math.isfinite(delta) and delta > 1):
        raise ValueError(f"delta must be greater than 1, got {delta}")
    if not all(math.isfinite(value) and value > 0 for value in constants):
        raise ValueError(f"constants C, C' and C'' must be positive, got {constants}")
    if not approximation_errors:
        raise ValueError("approximation_errors is empty: give one squared error a client")
    for client, value in enumerate(approximation_errors):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"client {client}'s approximation error must be a square, 0 or more, got {value}")
    ratio = inputs * math.sqrt(n / num_weights)
    if ratio < 1:
        raise ValueError(
            f"s_0 √(n / T) = {ratio:.3g} is less than 1, so its logarithm is negative and the bound says nothing: "
            f"{num_weights:g} weights are too many for {n:g} rows of {inputs} inputs; take at most "
            f"{inputs**2 * n:g} weights"
        )
    r_n = (num_weights / n) * ((depth + 1) * math.log(width) + math.log(ratio))
    epsilon_n = math.sqrt(r_n) * math.log(n) ** delta
    first, second, third = constants
    mean_error = math.fsum(approximation_errors) / len(approximation_errors)
    return Bound(r_n, epsilon_n, first * epsilon_n**2 + second * r_n, third * mean_error / zeta)


def network_size(n: float, *, smoothness: float, dimension: float, constant: float = 1.0) -> float:
    """T = C n^{d / (2β + d)}, which balances the bound's two parts; the caller rounds it to a network.

    >>> round(network_size(1000, smoothness=1, dimension=1), 6)
    10.0

    Raises ``ValueError`` for n < 1 and for a smoothness, dimension or constant that is not positive.
    """
    _check_rate(n, smoothness, dimension, constant)
    return constant * n ** (dimension / (2 * smoothness + dimension))


def approximation_error(num_weights: float, *, smoothness: float, dimension: float, constant: float = 1.0) -> float:
    """C_0 T^{-2β / d}: what the paper assumes that ξ_i is at most, for β-Hölder truths.

    >>> round(approximation_error(10, smoothness=1, dimension=1), 6)
    0.01

    Raises ``ValueError`` for T < 1 and for a smoothness, dimension or constant that is not positive.
    """
    _check_rate(num_weights, smoothness, dimension, constant, "num_weights")
    return constant * num_weights ** (-2 * smoothness / dimension)


def minimax_rate(n: float, *, smoothness: float, dimension: float) -> float:
    """n^{-2β / (2β + d)}: no estimator's squared L² error falls faster for all β-Hölder truths on d dimensions.

    pFedBayes' bound at :func:`network_size` weights is this times a power of log n.

    >>> round(minimax_rate(1000, smoothness=1, dimension=1), 6)
    0.01

    Raises ``ValueError`` for n < 1 and for a smoothness or dimension that is not positive.
    """
    _check_rate(n, smoothness, dimension, 1.0)
    return n ** (-2 * smoothness / (2 * smoothness + dimension))


def num_weights(widths: Sequence[int]) -> int:
    """T of a fully connected network: weights and biases between ``widths`` (inputs, units a layer, outputs).

    >>> num_weights([784, 100, 10])
    79510

    Raises ``ValueError`` for fewer than two widths, or one that is less than 1.
    """
    if len(widths) < 2:
        raise ValueError(f"widths are inputs, hidden units and outputs, at least two numbers, got {list(widths)}")
    for width in widths:
        _at_least_one("every width", width)
    return sum((before + 1) * after for before, after in pairwise(widths))


def _check_rate(size: float, smoothness: float, dimension: float, constant: float, label: str = "n") -> None:
    _at_least_one(label, size)
    for name, value in (("smoothness", smoothness), ("dimension", dimension), ("constant", constant)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive, got {value}")


def _at_least_one(label: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 1):
        raise ValueError(f"{label} must be at least 1, got {value}")
