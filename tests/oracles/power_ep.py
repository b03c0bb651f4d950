"""Power expectation propagation (Minka 2004) with a factor a row, or a factor a group of rows.

A factor t with power α: the cavity is q / t^α, the tilted distribution cavity · p(y | θ)^α, and
t_new = (projection / cavity)^(1/α). α = 1 is EP, α → 0 variational inference.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .federated import Client, Natural, add, is_proper, moments_of, times
from .glm import Array, Covariance, as_matrix
from .tilted import Response, project_rows, tilted_moments


class PowerEP(NamedTuple):
    """q at a fixed point, its factors, and the approximation of the log evidence in nats.

    `iterations` were needed; in the last one no natural parameter moved by more than `change`. For factors of rows
    and full covariance the factors are pairs of scalars of the predictor x_i·θ, otherwise of θ's own shape.
    """

    posterior: Natural
    factors: list[Natural]
    log_evidence: float
    iterations: int
    change: float


def log_partition(natural: Natural) -> float:
    """log ∫ exp(h·θ - ½ θᵀPθ) dθ."""
    h, precision = natural
    mean, _ = moments_of(natural)
    log_determinant = np.log(precision).sum() if precision.ndim == 1 else np.linalg.slogdet(precision)[1]
    return float(0.5 * (h @ mean + len(h) * np.log(2 * np.pi) - log_determinant))


def gaussian_prior(size: int, mean: ArrayLike, precision: ArrayLike, covariance: Covariance) -> Natural:
    """Natural parameters of the prior in the family of q."""
    matrix = as_matrix(precision, size)
    own = np.diag(matrix).copy() if covariance == "diagonal" else matrix
    return matrix @ np.broadcast_to(np.asarray(mean, dtype=np.float64), (size,)), own


def power_ep(
    design: Array,
    y: Array,
    alpha: float = 1.0,
    likelihood: Response = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "full",
    damping: float = 0.5,
    noise_scale: float = 1.0,
    tolerance: float = 1e-9,
    max_iterations: int = 2000,
) -> PowerEP:
    """Every row is a factor; parallel damped updates until no natural parameter moves by more than `tolerance`.

    Full covariance: two scalars a row, h_i and τ_i of exp(h_i η_i - ½ τ_i η_i²). Diagonal: vectors [d] a row, from the
    exact marginal moments of the tilted distribution. Raises `RuntimeError` without convergence.
    """
    n, size = design.shape
    prior = gaussian_prior(size, prior_mean, prior_precision, covariance)
    shape = n if covariance == "full" else (n, size)
    h, tau, q, change = np.zeros(shape), np.zeros(shape), prior, np.inf
    for iteration in range(1, max_iterations + 1):
        cavity_h, cavity_tau, new_h, new_tau, logs = _tilt(design, y, q, (h, tau), alpha, likelihood, noise_scale)
        new_h, new_tau = (new_h - cavity_h) / alpha, (new_tau - cavity_tau) / alpha
        step_h, step_tau = damping * (new_h - h), damping * (new_tau - tau)
        change = max(np.abs(step_h).max(), np.abs(step_tau).max())
        if change < tolerance:
            break
        h, tau = h + step_h, tau + step_tau
        q = _multiply(design, prior, h, tau)
        if not is_proper(q):
            raise RuntimeError(f"q is improper after {iteration} iterations: use a damping below {damping}")
    else:
        raise RuntimeError(f"power EP still moves by {change:.1e} after {max_iterations} iterations")
    cavities = _partitions(cavity_h, cavity_tau) - _partitions(alpha * h + cavity_h, alpha * tau + cavity_tau)
    evidence = log_partition(q) - log_partition(prior) + (logs + cavities).sum() / alpha
    return PowerEP(q, list(zip(h, tau, strict=True)), float(evidence), iteration, float(change))


def _multiply(design: Array, prior: Natural, h: Array, tau: Array) -> Natural:
    """Prior times the rows' factors."""
    if h.ndim == 2:
        return prior[0] + h.sum(0), prior[1] + tau.sum(0)
    return prior[0] + design.T @ h, prior[1] + (design.T * tau) @ design


def _partitions(h: Array, tau: Array) -> Array:
    """Each row's log partition [n] of one-dimensional ([n]) or diagonal ([n, d]) Gaussians."""
    logs = 0.5 * (h**2 / tau + np.log(2 * np.pi / tau))
    return logs if logs.ndim == 1 else logs.sum(1)


def _tilt(
    design: Array,
    y: Array,
    q: Natural,
    factors: Natural,
    alpha: float,
    likelihood: Response,
    noise_scale: float,
) -> tuple[Array, Array, Array, Array, Array]:
    """Natural parameters of all cavities and of all projections (of η_i, or of θ), and log normalisers [n]."""
    h, tau = factors
    mean, covariance = moments_of(q)
    if h.ndim == 1:
        variance = ((design @ covariance) * design).sum(1)
        cavity_h, cavity_tau = design @ mean / variance - alpha * h, 1 / variance - alpha * tau
        logs, new_a, new_v = tilted_moments(y, cavity_h / cavity_tau, 1 / cavity_tau, alpha, likelihood, noise_scale)
        return cavity_h, cavity_tau, new_a / new_v, 1 / new_v, logs
    cavity_h, cavity_tau = q[0] - alpha * h, q[1] - alpha * tau
    means, variances = cavity_h / cavity_tau, 1 / cavity_tau
    gain = design * variances
    a, v = (design * means).sum(1), (design * gain).sum(1)
    logs, new_a, new_v = tilted_moments(y, a, v, alpha, likelihood, noise_scale)
    new_means = means + gain * ((new_a - a) / v)[:, None]
    new_variances = variances + gain**2 * ((new_v - v) / v**2)[:, None]
    return cavity_h, cavity_tau, new_means / new_variances, 1 / new_variances, logs


def grouped_power_ep(
    clients: Sequence[Client],
    alpha: float = 1.0,
    likelihood: Response = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "full",
    damping: float = 0.5,
    noise_scale: float = 1.0,
    tolerance: float = 1e-9,
    max_iterations: int = 2000,
) -> PowerEP:
    """Every client's rows are one factor (clients of several rows: at most two coefficients); parallel updates."""
    prior = gaussian_prior(clients[0][0].shape[1], prior_mean, prior_precision, covariance)
    q, factors, change = prior, [times(prior, 0.0) for _ in clients], np.inf
    for iteration in range(1, max_iterations + 1):
        cavities = [add(q, factor, -alpha) for factor in factors]
        found = [
            project_rows(*client, cavity, alpha, likelihood, noise_scale)
            for client, cavity in zip(clients, cavities, strict=True)
        ]
        steps = [times(add(new, q, -1), damping / alpha) for _, new in found]
        change = max(np.abs(part).max() for step in steps for part in step)
        if change < tolerance:
            break
        for index, step in enumerate(steps):
            factors[index] = add(factors[index], step)
            q = add(q, step)
        if not is_proper(q):
            raise RuntimeError(f"q is improper after {iteration} iterations: use a damping below {damping}")
    else:
        raise RuntimeError(f"power EP still moves by {change:.1e} after {max_iterations} iterations")
    pairs = zip(found, cavities, strict=True)
    evidence = sum(logs + log_partition(cavity) - log_partition(q) for (logs, _), cavity in pairs) / alpha
    return PowerEP(q, factors, evidence + log_partition(q) - log_partition(prior), iteration, float(change))
