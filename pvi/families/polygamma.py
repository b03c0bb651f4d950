"""The digamma function's inverse and the trigamma function's remainders, without cancellation."""

import torch
from torch import Tensor

LARGE = 32.0
"""From here on the asymptotic series below are exact to double precision."""
NEWTON_STEPS = 6


def trigamma(x: Tensor) -> Tensor:
    """ψ'(x)."""
    return torch.polygamma(1, x)


def trigamma_remainder(x: Tensor) -> Tensor:
    """x ψ'(x) - 1 for x > 0, which is 1/(2x) for large x."""
    large = torch.where(x < LARGE, torch.full_like(x, LARGE), x)
    return torch.where(x < LARGE, x * trigamma(x) - 1, _series(large) / large)


def reciprocal_remainder(x: Tensor) -> Tensor:
    """1/ψ'(x) - x + ½ for x > 0, which is 1/(12x) for large x."""
    large = torch.where(x < LARGE, torch.full_like(x, LARGE), x)
    series = _series(large)
    return torch.where(x < LARGE, 1 / trigamma(x) - x + 0.5, 0.5 - series / (1 + series / large))


def _series(x: Tensor) -> Tensor:
    """x (x ψ'(x) - 1), asymptotically."""
    square = x.square()
    return 0.5 + (1 / 6 - (1 / 30 - (1 / 42 - 1 / (30 * square)) / square) / square) / x


def inverse_digamma(y: Tensor) -> Tensor:
    """x > 0 with ψ(x) = y: Newton's method from Minka's start, which is within 8 % (Minka, 2000, appendix C)."""
    x = torch.where(y > -2.22, y.exp() + 0.5, -1 / (y - torch.digamma(torch.ones_like(y))))
    for _ in range(NEWTON_STEPS):
        x = x - (torch.digamma(x) - y) / trigamma(x)
    return x
