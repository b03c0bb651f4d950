"""Generalised linear mixed models: every client has an intercept of its own, b_m ~ N(0, tau²), besides what is shared.

On pooled rows this is a plain generalised linear model with one more column a client, which is 1 on its rows.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from .federated import Client
from .glm import Array, Likelihood, as_matrix, elbo
from .vi import LocalObjective, Solution, global_vi


def mixed_design(clients: Sequence[Client]) -> tuple[Array, Array]:
    """Design [n, d + M], the shared columns and then an indicator a client, and y [n], in the clients' order."""
    place = np.repeat(np.arange(len(clients)), [len(y) for _, y in clients])
    shared, y = (np.concatenate([client[part] for client in clients]) for part in (0, 1))
    return np.hstack([shared, np.eye(len(clients))[place]]), y


def mixed_precision(size: int, num_clients: int, tau: float, shared: ArrayLike = 1.0) -> Array:
    """Prior precision [d + M, d + M]: `shared` (scalar, [d] or [d, d]) and tau^-2 for each client's intercept."""
    precision = np.diag(np.full(size + num_clients, tau**-2.0))
    precision[:size, :size] = as_matrix(shared, size)
    return precision


def mixed_vi(
    clients: Sequence[Client],
    tau: float,
    likelihood: Likelihood = "bernoulli",
    covariance: Literal["diagonal", "full", "blocks"] = "full",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Solution:
    """The best Gaussian over (shared [d], b_1, ..., b_M) together; the prior's mean and precision are of the shared.

    "full" correlates everything, "diagonal" nothing; "blocks" only the shared coefficients with each other.
    """
    size, count = clients[0][0].shape[1], len(clients)
    design, y = mixed_design(clients)
    mean = np.r_[np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), (size,)), np.zeros(count)]
    precision = mixed_precision(size, count, tau, prior_precision)
    if covariance != "blocks":
        return global_vi(design, y, likelihood, mean, precision, covariance, noise_scale, num_nodes)
    start = global_vi(design, y, likelihood, mean, precision, "diagonal", noise_scale, num_nodes)
    return _block_vi(design, y, likelihood, mean, precision, size, start, noise_scale, num_nodes)


def _block_vi(
    design: Array,
    y: Array,
    likelihood: Likelihood,
    prior_mean: Array,
    precision: Array,
    size: int,
    start: Solution,
    noise_scale: float,
    num_nodes: int,
) -> Solution:
    """Maximum over covariances with one block of the first `size` coefficients and a diagonal for the others.

    L-BFGS on the free entries of the Cholesky factor, in units of the start's standard deviations.
    """
    total = len(prior_mean)
    scale = np.sqrt(start.covariance)
    scaled = precision * np.outer(scale, scale)
    objective = LocalObjective(
        design * scale, y, scale * (precision @ prior_mean), scaled, likelihood, noise_scale, num_nodes
    )
    rows, columns = np.tril_indices(total)
    free = np.r_[np.ones(total, bool), (rows == columns) | (rows < size)]

    def loss(x: Array) -> tuple[float, Array]:
        full = np.zeros(len(free))
        full[free] = x
        value, gradient = objective.full(full)
        return -value, -gradient[free]

    first = np.r_[start.mean / scale, np.zeros(int(free.sum()) - total)]
    found = optimize.minimize(
        loss, first, jac=True, method="L-BFGS-B", options={"maxiter": 20_000, "maxfun": 20_000, "gtol": 1e-7, "ftol": 0}
    )
    norm = float(np.linalg.norm(loss(found.x)[1]))
    if not norm < 1e-4:
        raise RuntimeError(f"variational inference in blocks stopped at a gradient norm of {norm:.1e}")
    full = np.zeros(len(free))
    full[free] = found.x
    factor = np.zeros((total, total))
    factor[rows, columns] = full[total:]
    factor[np.diag_indices(total)] = np.exp(np.diag(factor))
    root = scale[:, None] * factor
    mean, covariance = scale * full[:total], root @ root.T
    value = elbo(design, y, mean, covariance, likelihood, prior_mean, precision, noise_scale, num_nodes)
    return Solution(value, mean, covariance, norm)
