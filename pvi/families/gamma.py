"""Gamma laws of positive numbers: T(x) = (log x, x), η = (α - 1, -β)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families.edges import above_zero, first_crossing
from pvi.families.gamma_draws import log_gamma_draws
from pvi.families.polygamma import trigamma, trigamma_remainder
from pvi.families.protocol import Family

NEWTON_STEPS = 8


@dataclass(frozen=True)
class Gamma:
    """Independent Gammas with shapes α and rates β; natural parameters ``[..., 2 * size]``.

    >>> Gamma(1).natural_from_standard(concentration=torch.tensor([3.0]), rate=torch.tensor([2.0]))
    tensor([ 2., -2.])
    """

    size: int

    @property
    def num_natural(self) -> int:
        """Two a number."""
        return 2 * self.size

    @property
    def num_free(self) -> int:
        """Two a number: log mean and log shape."""
        return 2 * self.size

    def _split(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        return natural[..., : self.size] + 1, -natural[..., self.size :]

    def statistics(self, x: Tensor) -> Tensor:
        """(log x, x)."""
        return torch.cat([x.log(), x], -1)

    def log_partition(self, natural: Tensor) -> Tensor:
        """Σ log Γ(α) - α log β, nats."""
        alpha, beta = self._split(natural)
        value = (torch.lgamma(alpha) - alpha * beta.log()).sum(-1)
        return torch.where(self.is_proper(natural), value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """(ψ(α) - log β, α/β)."""
        alpha, beta = self._split(natural)
        return torch.cat([torch.digamma(alpha) - beta.log(), alpha / beta], -1)

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from (E[log x], E[x]): log α - ψ(α) = log E[x] - E[log x], by Minka's Newton steps in 1/α (2002).

        The last step is one in all of η, which also carries the derivative.
        """
        log_mean, average = mean.detach().split(self.size, -1)
        gap = average.log() - log_mean
        alpha = (3 - gap + ((gap - 3).square() + 24 * gap).sqrt()) / (12 * gap)
        for _ in range(NEWTON_STEPS):
            residual = alpha.log() - torch.digamma(alpha) - gap
            alpha = alpha / (1 - residual / trigamma_remainder(alpha))
        natural = self.natural_from_standard(concentration=alpha, rate=alpha / average)
        return natural - self.natural_gradient(natural, self.mean_parameters(natural) - mean)

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """((α a - β b)/c, (β² ψ'(α) b - β a)/c) with c = α ψ'(α) - 1, for the gradient (a, b)."""
        alpha, beta = self._split(natural)
        a, b = gradient.split(self.size, -1)
        c = trigamma_remainder(alpha)
        b = beta * b
        return torch.cat([(alpha * a - b) / c, beta * (trigamma(alpha) * b - a) / c], -1)

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """α/β and α/β²."""
        alpha, beta = self._split(natural)
        return alpha / beta, alpha / beta.square()

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``concentration`` α and ``rate`` β, each ``[..., size]``."""
        alpha, beta = self._split(natural)
        return {"concentration": alpha, "rate": beta}

    def natural_from_standard(self, *, concentration: Tensor, rate: Tensor) -> Tensor:
        """η from ``concentration`` and ``rate``."""
        return torch.cat([concentration - 1, -rate], -1)

    def free(self, natural: Tensor) -> Tensor:
        """(log α/β, log α): Fisher's information has no entry between mean and shape, so steps do not interfere."""
        alpha, beta = self._split(natural)
        return torch.cat([alpha.log() - beta.log(), alpha.log()], -1)

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η from (log mean, log shape)."""
        log_mean, log_shape = free.split(self.size, -1)
        return self.natural_from_standard(concentration=log_shape.exp(), rate=(log_shape - log_mean).exp())

    def free_scale(self, natural: Tensor) -> Tensor:
        """Fisher's standard deviation 1/√α of the log mean, 1 for the log shape (whose is between 1 and √2)."""
        scale = self._split(natural)[0].rsqrt()
        return torch.cat([scale, torch.ones_like(scale)], -1)

    def is_proper(self, natural: Tensor) -> Tensor:
        """All shapes and rates positive and everything finite."""
        return (torch.cat(self._split(natural), -1) > 0).all(-1) & torch.isfinite(natural).all(-1)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """Where the first shape or rate reaches zero."""
        change = torch.cat([delta[..., : self.size], -delta[..., self.size :]], -1)
        return first_crossing(torch.cat(self._split(natural), -1), change)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """G(α)/β, ``[*sample_shape, ..., size]``."""
        alpha, beta = self._split(natural)
        return above_zero((log_gamma_draws(alpha, sample_shape, generator) - beta.log()).exp())

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``Gamma(concentration, rate)`` of the given event shape."""
        shape = (self.size,) if shape is None else shape
        alpha, beta = (value.reshape((*natural.shape[:-1], *shape)) for value in self._split(natural))
        gamma = torch.distributions.Gamma(alpha, beta)
        return torch.distributions.Independent(gamma, len(shape)) if shape else gamma

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """The pieces of both blocks."""
        pieces = [natural[..., start:stop], natural[..., self.size + start : self.size + stop]]
        return Gamma(stop - start), torch.cat(pieces, -1)

    def interior(self, like: Tensor) -> Tensor:
        """Ones."""
        return torch.ones(self.size, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η from gradients at 1 and ½: ∇ log q(x) = (α - 1)/x - β."""
        one = self.interior(like)
        gradient = torch.func.grad(log_density)
        at_one = gradient(one)
        first = gradient(0.5 * one) - at_one
        return torch.cat([first, at_one - first])
