"""Generalised linear models under a Gaussian q: expected log likelihoods, ELBO, evidence, predictive scores.

Model: θ ~ N(prior_mean, prior_precision⁻¹) with d entries; row i has the predictor η_i = x_i·θ and

    bernoulli   y_i in {0, 1}, log-odds η_i
    poisson     y_i in {0, 1, ...}, rate exp(η_i)
    gaussian    y_i real, mean η_i, standard deviation `noise_scale`

q(θ) = N(mean, covariance). Under q, η_i ~ N(a_i, s_i²), so every expectation is one-dimensional: closed form for
Poisson and Gaussian, Gauss-Hermite with `num_nodes` nodes for Bernoulli. A covariance or precision is a [d] vector
(diagonal) or a [d, d] matrix (full); a scalar precision means a multiple of the identity. All log quantities are in
nats and keep all constants.
"""

from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]
Likelihood = Literal["bernoulli", "poisson", "gaussian"]
Covariance = Literal["diagonal", "full"]
Client = tuple[Array, Array]  # design [n, d] and y [n]


class Moments(NamedTuple):
    """E log p(y_i | η_i) and its first and second derivatives in a_i and s_i; each [n]."""

    value: Array
    a: Array
    s: Array
    aa: Array
    as_: Array
    ss: Array


@cache
def quadrature(num_nodes: int) -> tuple[Array, Array]:
    """Nodes and weights [num_nodes] for E f(z), z ~ N(0, 1); weights sum to 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    return nodes, weights / weights.sum()


def expected_log_likelihood(
    y: Array,
    a: Array,
    s: Array,
    likelihood: Likelihood = "bernoulli",
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Moments:
    """E log p(y_i | a_i + s_i z), z ~ N(0, 1), in nats, with derivatives of the very same sum; y, a, s [n]."""
    if likelihood == "gaussian":
        one, precision = np.ones_like(a), noise_scale**-2
        value = -0.5 * np.log(2 * np.pi / precision) - 0.5 * precision * ((y - a) ** 2 + s**2)
        return Moments(value, precision * (y - a), -precision * s, -precision * one, 0 * one, -precision * one)
    if likelihood == "poisson":
        with np.errstate(over="ignore", invalid="ignore"):
            rate = np.exp(a + 0.5 * s**2)
            value = y * a - rate - special.gammaln(y + 1)
            return Moments(value, y - rate, -s * rate, -rate, -s * rate, -(1 + s**2) * rate)
    if likelihood != "bernoulli":
        raise ValueError(f"unknown likelihood {likelihood!r}")
    z, w = quadrature(num_nodes)
    eta = a[:, None] + s[:, None] * z
    p = special.expit(eta)
    slope, curvature = y[:, None] - p, -p * (1 - p)
    value = y * a - np.logaddexp(0, eta) @ w
    return Moments(value, slope @ w, slope @ (w * z), curvature @ w, curvature @ (w * z), curvature @ (w * z * z))


def as_matrix(value: ArrayLike, size: int) -> Array:
    """A scalar, [d] or [d, d] precision or covariance as a [d, d] matrix."""
    value = np.asarray(value, dtype=np.float64)
    return value if value.ndim == 2 else np.diag(np.broadcast_to(value, (size,)).copy())


def inverse(matrix: Array) -> Array:
    """Inverse of a symmetric matrix [d, d], symmetric to the last bit."""
    result: Array = np.linalg.inv(matrix)  # type: ignore[assignment]
    return 0.5 * (result + result.T)


def predictor_scale(design: Array, covariance: Array) -> Array:
    """Standard deviation [n] of x_i·θ under a [d] or [d, d] covariance (kept above 1e-8: it divides)."""
    variance = design**2 @ covariance if covariance.ndim == 1 else ((design @ covariance) * design).sum(1)
    return np.sqrt(np.maximum(variance, 1e-16))


def kl_divergence(mean: Array, covariance: Array, other_mean: Array, other_covariance: Array) -> float:
    """KL(N(mean, covariance), N(other_mean, other_covariance)) in nats; covariances [d] or [d, d]."""
    size = len(mean)
    first, second = as_matrix(covariance, size), as_matrix(other_covariance, size)
    shift = other_mean - mean
    trace = np.trace(np.linalg.solve(second, first + np.outer(shift, shift)))
    return float(0.5 * (trace - size + np.linalg.slogdet(second)[1] - np.linalg.slogdet(first)[1]))


def elbo(
    design: Array,
    y: Array,
    mean: Array,
    covariance: Array,
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> float:
    """ELBO in nats of q = N(mean [d], covariance [d] or [d, d]) for design [n, d] and y [n]."""
    size = design.shape[1]
    s = predictor_scale(design, covariance)
    fit = expected_log_likelihood(y, design @ mean, s, likelihood, noise_scale, num_nodes).value.sum()
    prior = np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), (size,))
    return float(fit - kl_divergence(mean, covariance, prior, inverse(as_matrix(prior_precision, size))))


def linear_regression(
    design: Array,
    y: Array,
    noise_scale: float = 1.0,
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
) -> tuple[Array, Array, float]:
    """Exact posterior mean [d], covariance [d, d] and log evidence (nats) of the Gaussian model."""
    n, size = design.shape
    prior = as_matrix(prior_precision, size)
    shift = np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), (size,))
    precision = prior + design.T @ design / noise_scale**2
    mean = np.linalg.solve(precision, prior @ shift + design.T @ y / noise_scale**2)
    quadratic = ((y - design @ mean) ** 2).sum() / noise_scale**2 + (mean - shift) @ prior @ (mean - shift)
    log_determinants = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1]
    evidence = 0.5 * (log_determinants - quadratic - n * np.log(2 * np.pi * noise_scale**2))
    return np.asarray(mean, dtype=np.float64), inverse(precision), float(evidence)


def lppd(design: Array, y: Array, mean: Array, covariance: Array, num_nodes: int = 64) -> float:
    """Mean over rows of log E_q p(y_i | θ), logistic regression, in nats a row."""
    z, w = quadrature(num_nodes)
    eta = (design @ mean)[:, None] + predictor_scale(design, covariance)[:, None] * z
    return float(np.log(special.expit(np.where(y[:, None] > 0.5, eta, -eta)) @ w).mean())


def accuracy(design: Array, y: Array, mean: Array) -> float:
    """Share of rows whose more probable class under E_q p(y_i | θ) is right (class 1 if x_i·mean > 0)."""
    return float(((design @ mean > 0) == (y > 0.5)).mean())
