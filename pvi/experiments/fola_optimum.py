"""The full Laplace posterior of softmax regression at the optimum of all rows, and how far from it an estimate is.

log p(θ | D) = Σ_i log softmax(W x_i + b)_{y_i} - (1 / 2s²) |θ|² + const is concave: N(θ*, Λ*⁻¹) with Λ* the negative
Hessian at its maximum θ* is what FOLA's AE = -log N(θ_S; θ*, Λ*⁻¹) and LF = Σ π_n (-log N(θ_n; θ*, Λ*⁻¹)) are of.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from pvi import Result
from pvi.experiments.fola_accuracy import mean, shares
from pvi.experiments.protocol import Pair

WEIGHTS, BIAS = "weights_1", "bias_1"
"""The sites of :mod:`pvi.models.bayesian_mlp` without hidden layers: ``[classes, d]`` and ``[classes]``."""
STEPS = 10_000


@dataclass(frozen=True, eq=False)
class Optimum:
    """N(θ*, Λ*⁻¹) of θ = (W, b), a row a class: ``theta [classes, d + 1]``.

    ``p [n, classes]`` are the class probabilities of the ``design [n, d + 1]``, which has a column of ones; Λ* is never
    needed as a matrix but for ``log_det``, in nats. ``gradient`` is the largest entry of the gradient at θ*.
    """

    theta: Tensor
    design: Tensor
    p: Tensor
    prior_scale: float
    log_det: float
    gradient: float

    def distance(self, values: Mapping[str, Tensor]) -> float:
        """-log N(θ; θ*, Λ*⁻¹) in nats, for the model's sites.

        The quadratic form is Σ_i Var_{p_i}(x_i·(θ - θ*)) + |θ - θ*|² / s².
        """
        found = torch.cat([values[WEIGHTS], values[BIAS][:, None]], 1).detach().cpu().double()
        move = found - self.theta
        change = self.design @ move.T
        variance = (self.p * change.square()).sum(1) - (self.p * change).sum(1).square()
        return self.least + 0.5 * (variance.sum() + move.square().sum() / self.prior_scale**2).item()

    @property
    def least(self) -> float:
        """The distance of θ* itself, in nats; negative where the posterior is narrow."""
        return 0.5 * (self.theta.numel() * math.log(2 * math.pi) - self.log_det)


def distances(result: Result, best: Optimum, clients: Mapping[str, Pair]) -> dict[str, float]:
    """``ae`` of the server's mean, ``lf`` = Σ π_n of the clients', and both ``least`` they can be, in nats."""
    found = {"ae": best.distance(mean(result.posterior)), "least": best.least}
    if result.personal:
        local = [best.distance(mean(result.personal[name])) for name in clients]
        found["lf"] = sum(share * one for share, one in zip(shares(clients), local, strict=True))
    return found


def optimum(rows: Pair, classes: int, prior_scale: float = 1.0) -> Optimum:
    """The optimum of labels ``y [n]`` in 0, ..., classes - 1 on ``x [n, d]``, in double precision.

    Raises ``ValueError`` where L-BFGS does not come to an end.
    """
    x, y = rows[0].detach().cpu().double(), rows[1].cpu()
    design = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    hot = torch.nn.functional.one_hot(y, classes).double()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(flat).reshape(classes, -1)
        log_p = (design @ theta.T).log_softmax(1)
        gradient = (log_p.exp() - hot).T @ design + theta / prior_scale**2
        value = -(hot * log_p).sum() + 0.5 * theta.square().sum() / prior_scale**2
        return value.item(), gradient.reshape(-1).numpy()

    start = np.zeros(classes * design.shape[1])
    options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-5}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    if not found.success:
        raise ValueError(f"the optimum of {len(y)} rows was not found: {found.message}")
    theta = torch.from_numpy(found.x).reshape(classes, -1)
    p = (design @ theta.T).softmax(1)
    cholesky = torch.linalg.cholesky(precision(design, p, prior_scale))
    log_det = 2 * cholesky.diagonal().log().sum().item()
    return Optimum(theta, design, p, prior_scale, log_det, float(np.abs(loss(found.x)[1]).max()))


def precision(design: Tensor, p: Tensor, prior_scale: float) -> Tensor:
    """Λ* = Σ_i (diag p_i - p_i p_iᵀ) ⊗ x_i x_iᵀ + I / s², ``[classes (d + 1), classes (d + 1)]``, class by class."""
    classes, size = p.shape[1], design.shape[1]
    found = torch.eye(classes * size, dtype=design.dtype) / prior_scale**2
    blocks = found.view(classes, size, classes, size)
    for k in range(classes):
        for other in range(k + 1):
            weight = p[:, k] * (float(k == other) - p[:, other])
            block = design.T @ (weight[:, None] * design)
            blocks[k, :, other, :] += block
            if k != other:
                blocks[other, :, k, :] += block
    return found
