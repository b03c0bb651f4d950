"""Exact variational inference: the maximum of a (local) free energy over diagonal or full Gaussians."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from .glm import (
    Array,
    Covariance,
    Likelihood,
    Moments,
    as_matrix,
    elbo,
    expected_log_likelihood,
    inverse,
    predictor_scale,
)


@dataclass(frozen=True)
class Solution:
    """A Gaussian optimum: ELBO in nats, mean [d], covariance ([d] diagonal or [d, d]), gradient norm there.

    The gradient is with respect to the mean and the log standard deviations (diagonal) or the Cholesky factor
    with a logarithmic diagonal (full).
    """

    elbo: float
    mean: Array
    covariance: Array
    gradient_norm: float

    @property
    def natural(self) -> tuple[Array, Array]:
        """Natural parameters (h [d], precision [d] or [d, d]) with h = precision · mean."""
        if self.covariance.ndim == 1:
            return self.mean / self.covariance, 1 / self.covariance
        precision = inverse(self.covariance)
        return precision @ self.mean, precision


class LocalObjective:
    """F(q) = Σ E_q log p(y_i | θ) + E_q[h·θ - ½ θᵀPθ] + ½ log det covariance, in nats; VI maximises it.

    (h [d], precision [d, d]) are the natural parameters of the cavity (or of the prior), improper ones too.
    """

    def __init__(
        self,
        design: Array,
        y: Array,
        h: Array,
        precision: Array,
        likelihood: Likelihood,
        noise_scale: float,
        num_nodes: int,
    ):
        self.design, self.y, self.h, self.precision = design, y, h, precision
        self.options = (likelihood, noise_scale, num_nodes)

    def moments(self, mean: Array, covariance: Array) -> tuple[Moments, Array]:
        """Moments of the rows, and s [n]."""
        s = predictor_scale(self.design, covariance)
        return expected_log_likelihood(self.y, self.design @ mean, s, *self.options), s

    def diagonal(self, x: Array) -> tuple[float, Array, Array]:
        """F, gradient [2d] and Hessian [2d, 2d] in x = (mean, log standard deviations)."""
        mean, variance = np.split(x, 2)[0], np.exp(2 * np.split(x, 2)[1])
        m, s = self.moments(mean, variance)
        own, rows = np.diag(self.precision), self.design**2 * variance  # rows: s ds/dlog sd, [n, d]
        value = m.value.sum() + self.h @ mean - 0.5 * mean @ self.precision @ mean
        value += 0.5 * (np.log(variance) - own * variance).sum()
        spread = rows.T @ (m.s / s)
        gradient = np.r_[self.design.T @ m.a + self.h - self.precision @ mean, spread - own * variance + 1]
        mixed = (self.design.T * (m.as_ / s)) @ rows
        scale = (rows.T * ((m.ss - m.s / s) / s**2)) @ rows + np.diag(2 * spread - 2 * own * variance)
        return (
            value,
            gradient,
            np.block([[(self.design.T * m.aa) @ self.design - self.precision, mixed], [mixed.T, scale]]),
        )

    def full(self, x: Array) -> tuple[float, Array]:
        """F and gradient [d + d(d+1)/2] in x = (mean, Cholesky factor by rows with a logarithmic diagonal)."""
        size = len(self.h)
        mean, factor = x[:size], np.zeros((size, size))
        factor[np.tril_indices(size)] = x[size:]
        logs = np.diag(factor).copy()
        factor[np.diag_indices(size)] = np.exp(logs)
        m, s = self.moments(mean, factor @ factor.T)
        value = m.value.sum() + self.h @ mean - 0.5 * mean @ self.precision @ mean
        value += logs.sum() - 0.5 * ((self.precision @ factor) * factor).sum()
        slope = ((self.design.T * (m.s / s)) @ self.design - self.precision) @ factor
        slope[np.diag_indices(size)] = np.diag(slope) * np.diag(factor) + 1
        gradient = np.r_[self.design.T @ m.a + self.h - self.precision @ mean, slope[np.tril_indices(size)]]
        return value, gradient


def _ascend(function: Callable[[Array], tuple[float, Array, Array]], x: Array, tolerance: float) -> Array:
    """Newton's method for a maximum: the Hessian is made negative definite, steps are halved until F rises."""
    value, gradient, hessian = function(x)
    for _ in range(200):
        if np.linalg.norm(gradient) < tolerance:
            break
        eigenvalues, vectors = np.linalg.eigh(-hessian)
        step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(eigenvalues), 1e-8))
        step *= min(1.0, 5 / np.abs(step).max())
        for halvings in range(40):
            new = function(x + step * 0.5**halvings)
            smaller = np.linalg.norm(new[1]) < np.linalg.norm(gradient)  # decides where F has no digits left
            if new[0] > value + 1e-12 * abs(value) or (smaller and new[0] > value - 1e-11 * abs(value)):
                break
        else:
            break
        x, (value, gradient, hessian) = x + step * 0.5**halvings, new
    return x


def _pack(mean: Array, covariance: Array) -> Array:
    """The vector that `LocalObjective.full` takes, from mean [d] and covariance [d, d]."""
    factor = np.linalg.cholesky(covariance)
    factor[np.diag_indices(len(mean))] = np.log(np.diag(factor))
    return np.r_[mean, factor[np.tril_indices(len(mean))]]


def _fixed_point(
    objective: LocalObjective, mean: Array, covariance: Array, tolerance: float
) -> tuple[Array, Array, float]:
    """Natural-gradient steps, precision ← P - Xᵀ diag(dE/ds / s) X, halved until F rises.

    Returns mean [d], covariance [d, d] and gradient norm.
    """
    value, gradient = objective.full(_pack(mean, covariance))
    for _ in range(300):
        if np.linalg.norm(gradient) < tolerance:
            break
        m, s = objective.moments(mean, covariance)
        target = objective.precision - (objective.design.T * (m.s / s)) @ objective.design
        slope = objective.design.T @ m.a + objective.h - objective.precision @ mean
        old = inverse(covariance)
        for halvings in range(30):
            rate = 0.5**halvings
            precision = (1 - rate) * old + rate * target
            if np.linalg.eigvalsh(precision)[0] <= 0:
                continue
            new_covariance = inverse(precision)
            new_mean = mean + rate * new_covariance @ slope
            new = objective.full(_pack(new_mean, new_covariance))
            smaller = np.linalg.norm(new[1]) < np.linalg.norm(gradient)
            if new[0] > value + 1e-12 * abs(value) or (smaller and new[0] > value - 1e-11 * abs(value)):
                break
        else:
            break
        mean, covariance, (value, gradient) = new_mean, new_covariance, new
    return mean, covariance, float(np.linalg.norm(gradient))


def maximise(
    objective: LocalObjective, mean: Array, covariance: Array, tolerance: float = 1e-9
) -> tuple[Array, Array, float]:
    """Mean, covariance and gradient norm at the maximum of F.

    The family is that of the given start: a covariance [d] is diagonal, [d, d] full.
    """
    if covariance.ndim == 1:
        x = _ascend(objective.diagonal, np.r_[mean, 0.5 * np.log(covariance)], tolerance)
        return x[: len(mean)], np.exp(2 * x[len(mean) :]), float(np.linalg.norm(objective.diagonal(x)[1]))
    mean, covariance, norm = _fixed_point(objective, mean, covariance, tolerance)
    if norm < max(tolerance, 1e-7):
        return mean, covariance, norm
    size = len(mean)  # a hard problem: L-BFGS in the coordinates where the present q is standard normal
    root = np.linalg.cholesky(covariance)
    white = LocalObjective(
        objective.design @ root,
        objective.y,
        root.T @ objective.h,
        root.T @ objective.precision @ root,
        *objective.options,
    )

    def loss(x: Array) -> tuple[float, Array]:
        value, gradient = white.full(x)
        return -value, -gradient

    start = _pack(np.linalg.solve(root, mean), np.eye(size))
    found = optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "gtol": 1e-8, "ftol": 0}
    )
    factor = np.zeros((size, size))
    factor[np.tril_indices(size)] = found.x[size:]
    factor[np.diag_indices(size)] = np.exp(np.diag(factor))
    factor = root @ factor
    return _fixed_point(objective, root @ found.x[:size], factor @ factor.T, tolerance)


def global_vi(
    design: Array,
    y: Array,
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "diagonal",
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Solution:
    """The best Gaussian for design [n, d] and y [n]; its gradient norm is below 1e-7, or RuntimeError."""
    size = design.shape[1]
    precision = as_matrix(prior_precision, size)
    shift = np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), (size,))
    objective = LocalObjective(design, y, precision @ shift, precision, likelihood, noise_scale, num_nodes)

    def log_joint(theta: Array) -> tuple[float, Array, Array]:
        m = expected_log_likelihood(y, design @ theta, np.full(len(y), 1e-8), likelihood, noise_scale, num_nodes)
        value = m.value.sum() + objective.h @ theta - 0.5 * theta @ precision @ theta
        hessian = (design.T * m.aa) @ design - precision
        return value, design.T @ m.a + objective.h - precision @ theta, hessian

    mean = _ascend(log_joint, shift.copy(), 1e-6)  # the Laplace approximation is the start
    curvature = -log_joint(mean)[2]
    start = 1 / np.diag(curvature) if covariance == "diagonal" else inverse(curvature)
    mean, best, norm = maximise(objective, mean, start)
    if not norm < 1e-7:
        raise RuntimeError(f"global VI stopped at a gradient norm of {norm:.1e}")
    value = elbo(design, y, mean, best, likelihood, shift, precision, noise_scale, num_nodes)
    return Solution(value, mean, best, norm)
