"""Type-II maximum likelihood: scales of prior and noise that maximise the evidence, or its lower bound."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from .glm import Array, Covariance, Likelihood
from .vi import global_vi

GRID = np.log([0.05, 0.3, 1.0, 3.0, 20.0])  # starts


class Scales(NamedTuple):
    """Standard deviations of noise and prior at the maximum, the objective there (nats), and its gradient's norm.

    The gradient is with respect to the logarithms of the scales that were free.
    """

    noise_scale: float
    prior_scale: float
    objective: float
    gradient_norm: float


def log_evidence(
    design: Array, y: Array, noise_scale: float, prior_scale: float, prior_mean: ArrayLike = 0.0
) -> tuple[float, Array]:
    """log p(y) in nats and its gradient in (log noise_scale, log prior_scale), from the singular values of the design.

    y ~ N(X μ, σ² I + s² X Xᵀ), whose eigenvalues are σ² + s² d_i², and σ² where X has no direction.
    """
    n, size = design.shape
    left, singular, _ = np.linalg.svd(design, full_matrices=False)
    residual = y - design @ np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), (size,))
    along = left.T @ residual
    rest = residual @ residual - along @ along
    noise, prior = noise_scale**2, prior_scale**2 * singular**2
    total, missing = noise + prior, n - len(singular)
    value = -0.5 * (n * np.log(2 * np.pi) + np.log(total).sum() + (along**2 / total).sum())
    value -= 0.5 * (missing * np.log(noise) + rest / noise)
    slope = along**2 / total**2 - 1 / total  # twice the derivative in each eigenvalue
    gradient = [(slope * noise).sum() + rest / noise - missing, (slope * prior).sum()]
    return float(value), np.array(gradient)


def type_two(
    design: Array,
    y: Array,
    noise_scale: float | None = None,
    prior_scale: float | None = None,
    prior_mean: ArrayLike = 0.0,
) -> Scales:
    """Scales of y ~ N(X θ, noise²), θ ~ N(prior_mean, prior²) that maximise the evidence; a given scale stays.

    The best of 25 starts. Raises `RuntimeError` where the maximum is at zero or infinity.
    """
    given = np.log([np.nan if scale is None else scale for scale in (noise_scale, prior_scale)])
    free = np.isnan(given)

    def loss(x: Array) -> tuple[float, Array]:
        logs = given.copy()
        logs[free] = x
        value, gradient = log_evidence(design, y, *np.exp(logs), prior_mean)
        return -value, -gradient[free]

    starts = np.stack(np.meshgrid(*[GRID] * int(free.sum())), axis=-1).reshape(-1, int(free.sum()))
    runs = [
        optimize.minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=[(-12, 12)] * len(start), options={"ftol": 0, "gtol": 1e-9}
        )
        for start in starts
    ]
    best = min(runs, key=lambda run: run.fun)
    if np.abs(best.x).max() > 11.9:
        raise RuntimeError(f"the evidence has no maximum at finite scales: {np.exp(best.x)}")
    logs = given.copy()
    logs[free] = best.x
    return Scales(*(float(scale) for scale in np.exp(logs)), -float(best.fun), float(np.linalg.norm(loss(best.x)[1])))


def best_scales(
    design: Array,
    y: Array,
    likelihood: Likelihood = "bernoulli",
    covariance: Covariance = "diagonal",
    noise_scale: float | None = 1.0,
    prior_scale: float | None = None,
    prior_mean: ArrayLike = 0.0,
) -> Scales:
    """Scales that maximise the ELBO of global VI, without derivatives: where the maximum over both q and ε is."""
    given = np.log([np.nan if scale is None else scale for scale in (noise_scale, prior_scale)])
    free = np.isnan(given)

    def loss(x: Array) -> float:
        logs = given.copy()
        logs[free] = x
        noise, prior = np.exp(logs)
        return -global_vi(design, y, likelihood, prior_mean, prior**-2.0, covariance, noise).elbo

    found = optimize.minimize(
        loss, np.zeros(int(free.sum())), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-11, "maxiter": 1000}
    )
    if not found.success or np.abs(found.x).max() > 8:
        raise RuntimeError(f"the ELBO has no maximum at finite scales: {np.exp(found.x)}, {found.message}")
    slope = [(loss(found.x + step) - loss(found.x - step)) / 2e-4 for step in 1e-4 * np.eye(len(found.x))]
    logs = given.copy()
    logs[free] = found.x
    return Scales(*(float(scale) for scale in np.exp(logs)), -float(found.fun), float(np.linalg.norm(slope)))
