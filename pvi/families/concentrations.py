"""Dirichlet laws by their concentrations α ``[..., K]``, as Beta and Dirichlet share them.

T(x) = log x, η = α - 1, with respect to Lebesgue measure on the first K - 1 coordinates.
"""

import torch
from torch import Tensor

from pvi.families.gamma_draws import log_gamma_draws
from pvi.families.polygamma import LARGE, inverse_digamma, reciprocal_remainder, trigamma

NEWTON_STEPS = 40


def log_normaliser(alpha: Tensor) -> Tensor:
    """Σ log Γ(α_k) - log Γ(Σ α_k), ``[...]`` in nats."""
    return torch.lgamma(alpha).sum(-1) - torch.lgamma(alpha.sum(-1))


def mean_log(alpha: Tensor) -> Tensor:
    """E[log x_k] = ψ(α_k) - ψ(Σ α)."""
    return torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))


def solve_fisher(alpha: Tensor, gradient: Tensor) -> Tensor:
    """F⁻¹ g for F = diag ψ'(α) - ψ'(Σ α) 11ᵀ, by Sherman and Morrison, ``[..., K]``.

    With r = 1/ψ' the denominator is r(Σ α) - Σ r(α_k), which cancels for large α: r(x) - x + ½ takes its place there.
    """
    total = alpha.sum(-1)
    reciprocal = 1 / trigamma(alpha)
    direct = 1 / trigamma(total) - reciprocal.sum(-1)
    remainder = 0.5 * (alpha.shape[-1] - 1) + reciprocal_remainder(total) - reciprocal_remainder(alpha).sum(-1)
    denominator = torch.where(total < LARGE, direct, remainder)
    scaled = reciprocal * gradient
    return scaled + reciprocal * (scaled.sum(-1) / denominator)[..., None]


def from_mean_log(mean: Tensor) -> Tensor:
    """α with E[log x] = ``mean``.

    One equation for a = Σ α is left: Σ ψ⁻¹(mean_k + ψ(a)) = a. Its difference is concave in a and negative at the
    start, a bound from ψ⁻¹(y) < exp(y) + ½, so that Newton's steps descend to the root without a safeguard. The last
    step is one in all of α, which also carries the derivative.
    """
    fixed = mean.detach()
    total = 0.5 * fixed.shape[-1] / -torch.expm1(torch.logsumexp(fixed, -1))
    for _ in range(NEWTON_STEPS):
        alpha = inverse_digamma(fixed + torch.digamma(total)[..., None])
        slope = trigamma(total) * (1 / trigamma(alpha)).sum(-1) - 1
        total = total - (alpha.sum(-1) - total) / slope
    alpha = inverse_digamma(fixed + torch.digamma(total)[..., None])
    return alpha - solve_fisher(alpha, mean_log(alpha) - mean)


def free(alpha: Tensor) -> Tensor:
    """(log α_k/α_K for k < K, log of the mean α): the mean's direction and the concentration, nearly orthogonal."""
    logs = alpha.log()
    return torch.cat([logs[..., :-1] - logs[..., -1:], alpha.mean(-1, keepdim=True).log()], -1)


def from_free(values: Tensor) -> Tensor:
    """The inverse of :func:`free`; zeros are the uniform law."""
    logits = torch.cat([values[..., :-1], torch.zeros_like(values[..., -1:])], -1)
    return alpha_of(torch.log_softmax(logits, -1), values[..., -1:])


def alpha_of(log_mean: Tensor, log_average: Tensor) -> Tensor:
    """α from log E[x] and the log of the mean α."""
    return log_mean.shape[-1] * (log_mean + log_average).exp()


def free_scale(alpha: Tensor) -> Tensor:
    """Fisher's standard deviation of each log ratio, 1 for the log concentration, ``[..., K]``."""
    mean = alpha / alpha.sum(-1, keepdim=True)
    weight = alpha.square() * trigamma(alpha)
    # ∂α_j = α_j (δ_jk - mean_k) for the k-th ratio, which leaves Σ α alone.
    information = weight.sum(-1, keepdim=True) * mean.square() + weight * (1 - 2 * mean)
    return torch.cat([information[..., :-1].rsqrt(), torch.ones_like(alpha[..., -1:])], -1)


def log_draws(alpha: Tensor, sample_shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """log x, ``[*sample_shape, ..., K]``: normalised Gamma draws."""
    return torch.log_softmax(log_gamma_draws(alpha, sample_shape, generator), -1)
