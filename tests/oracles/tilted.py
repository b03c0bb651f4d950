"""Moments of tilted distributions, cavity times likelihood^α, on dense trapezoid grids: nothing is sampled."""

from typing import Literal

import numpy as np
from scipy import special

from .federated import Natural, moments_of
from .glm import Array, inverse

Response = Literal["bernoulli", "probit", "poisson", "gaussian"]


def log_likelihood(y: Array, eta: Array, likelihood: Response, noise_scale: float = 1.0) -> Array:
    """log p(y_i | predictor η) in nats with all constants; y broadcasts against eta."""
    if likelihood == "bernoulli":
        return -np.logaddexp(0, np.where(y > 0.5, -eta, eta))
    if likelihood == "probit":
        return np.asarray(special.log_ndtr(np.where(y > 0.5, eta, -eta)))
    if likelihood == "poisson":
        with np.errstate(over="ignore"):
            return np.asarray(y * eta - np.exp(eta) - special.gammaln(y + 1))
    if likelihood == "gaussian":
        return -0.5 * ((y - eta) / noise_scale) ** 2 - np.log(noise_scale) - 0.5 * np.log(2 * np.pi)
    raise ValueError(f"unknown likelihood {likelihood!r}")


def tilted_moments(
    y: Array,
    a: Array,
    v: Array,
    alpha: float,
    likelihood: Response,
    noise_scale: float = 1.0,
    num_nodes: int = 1001,
) -> tuple[Array, Array, Array]:
    """log normaliser (nats), mean and variance of N(η; a_i, v_i) p(y_i | η)^α for each row; all [n].

    Two passes: a grid over 16 standard deviations of the cavity each way, then one over 16 of what was found (tilted
    tails are heavier than the width suggests: ten leave 1e-5 of the variance out where the cavity is far off).
    """
    if not (v > 0).all():
        raise ValueError(f"the cavities of rows {np.flatnonzero(v <= 0)[:5]} are improper")
    centre, scale = a, np.sqrt(v)
    nodes, step = np.linspace(-16, 16, num_nodes, retstep=True)
    for _ in range(2):
        eta = centre[:, None] + scale[:, None] * nodes
        logs = -0.5 * (eta - a[:, None]) ** 2 / v[:, None]
        logs += alpha * log_likelihood(y[:, None], eta, likelihood, noise_scale)
        top = logs.max(1)
        weights = np.exp(logs - top[:, None])
        total = weights.sum(1)
        log_normaliser = top + np.log(total * step * scale) - 0.5 * np.log(2 * np.pi * v)
        mean = (weights * nodes).sum(1) / total
        variance = (weights * (nodes - mean[:, None]) ** 2).sum(1) / total * scale**2
        centre, scale = centre + scale * mean, np.sqrt(variance)
    return log_normaliser, centre, variance


def project_rows(
    design: Array,
    y: Array,
    cavity: Natural,
    alpha: float,
    likelihood: Response,
    noise_scale: float = 1.0,
) -> tuple[float, Natural]:
    """log normaliser and the Gaussian with the moments of N(θ; cavity) Π_i p(y_i | x_i·θ)^α.

    The family is the cavity's: marginal moments for a diagonal precision. One row needs one dimension, however many
    coefficients there are; more rows a grid over all coefficients, of which there may be one or two.
    """
    size, diagonal = design.shape[1], cavity[1].ndim == 1
    mean, covariance = moments_of(cavity)
    if diagonal:
        covariance = np.diag(covariance)
    if len(y) == 1:
        x = design[0]
        gain = covariance @ x
        a, v = np.array([x @ mean]), np.array([x @ gain])
        logs, new_a, new_v = tilted_moments(y, a, v, alpha, likelihood, noise_scale)
        log_normaliser = float(logs[0])
        new_mean = mean + gain * (new_a - a)[0] / v[0]
        new_covariance = covariance + np.outer(gain, gain) * (new_v - v)[0] / v[0] ** 2
    elif size <= 2:
        log_normaliser, new_mean, new_covariance = _grid_moments(
            design, y, mean, covariance, alpha, likelihood, noise_scale
        )
    else:
        raise ValueError(f"{len(y)} rows in one factor need a grid over {size} coefficients: at most 2 are possible")
    precision = 1 / np.diag(new_covariance) if diagonal else inverse(new_covariance)
    return log_normaliser, (precision * new_mean if diagonal else precision @ new_mean, precision)


def _grid_moments(
    design: Array, y: Array, mean: Array, covariance: Array, alpha: float, likelihood: Response, noise_scale: float
) -> tuple[float, Array, Array]:
    """log normaliser, mean [d] and covariance [d, d] of N(mean, covariance) Π p(y_i | θ)^α, d = 1 or 2."""
    size, prior = len(mean), (mean, inverse(covariance), np.linalg.slogdet(covariance)[1])
    line, step = np.linspace(-12, 12, 161 if size == 2 else 2001, retstep=True)
    nodes = np.stack(np.meshgrid(*[line] * size, indexing="ij"), axis=-1).reshape(-1, size)
    centre, root = mean, np.linalg.cholesky(covariance)
    for _ in range(2):
        theta = centre + nodes @ root.T
        shift = theta - prior[0]
        logs = -0.5 * ((shift @ prior[1]) * shift).sum(1)
        logs += alpha * log_likelihood(y, theta @ design.T, likelihood, noise_scale).sum(1)
        weights = np.exp(logs - logs.max())
        volume = np.linalg.slogdet(root)[1] + size * np.log(step)
        log_normaliser = logs.max() + np.log(weights.sum()) + volume - 0.5 * (size * np.log(2 * np.pi) + prior[2])
        weights /= weights.sum()
        centre = weights @ theta
        found = ((theta - centre).T * weights) @ (theta - centre)
        root = np.linalg.cholesky(found)
    return float(log_normaliser), centre, found
