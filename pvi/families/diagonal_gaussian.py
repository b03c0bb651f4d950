"""Gaussian with diagonal covariance: T(x) = (x, x²), η = (Λm, -½ diag Λ)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families.rows import combined, predicted


@dataclass(frozen=True)
class DiagonalGaussian:
    """Independent Gaussians over a vector of length ``size``; natural parameters ``[..., 2 * size]``.

    >>> family = DiagonalGaussian(1)
    >>> family.natural_from_standard(loc=torch.tensor([2.0]), scale=torch.tensor([0.5]))
    tensor([ 8., -2.])
    """

    size: int

    @property
    def num_natural(self) -> int:
        """Two a dimension."""
        return 2 * self.size

    @property
    def num_free(self) -> int:
        """Two a dimension: mean and log standard deviation."""
        return 2 * self.size

    def _split(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        return natural[..., : self.size], -2 * natural[..., self.size :]

    def statistics(self, x: Tensor) -> Tensor:
        """(x, x²)."""
        return torch.cat([x, x.square()], -1)

    def log_partition(self, natural: Tensor) -> Tensor:
        """½ Σ (h²/λ - log λ + log 2π), nats."""
        h, precision = self._split(natural)
        value = 0.5 * (h.square() / precision - precision.log() + math.log(2 * math.pi)).sum(-1)
        return torch.where(self.is_proper(natural), value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """(m, m² + σ²)."""
        h, precision = self._split(natural)
        loc = h / precision
        return torch.cat([loc, loc.square() + 1 / precision], -1)

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from (m, m² + σ²)."""
        loc, second = mean[..., : self.size], mean[..., self.size :]
        return self.natural_from_standard(loc=loc, scale=(second - loc.square()).sqrt())

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """The derivative of η along dμ = g: dη = (λ dm - m λ² dv, ½ λ² dv) with dv = d(m² + σ²) - 2 m dm."""
        h, precision = self._split(natural)
        loc, change = h / precision, gradient[..., : self.size]
        spread = precision.square() * (gradient[..., self.size :] - 2 * loc * change)
        return torch.cat([precision * change - loc * spread, 0.5 * spread], -1)

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """m and σ²."""
        return self.location(natural), self.variance(natural)

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``loc`` and ``scale``, each ``[..., size]``."""
        h, precision = self._split(natural)
        return {"loc": h / precision, "scale": precision.rsqrt()}

    def natural_from_standard(self, *, loc: Tensor, scale: Tensor) -> Tensor:
        """η from ``loc`` and ``scale``."""
        precision = scale.square().reciprocal()
        return torch.cat([precision * loc, -0.5 * precision], -1)

    def free(self, natural: Tensor) -> Tensor:
        """(m, log σ)."""
        h, precision = self._split(natural)
        return torch.cat([h / precision, -0.5 * precision.log()], -1)

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η from (m, log σ)."""
        return self.natural_from_standard(loc=free[..., : self.size], scale=free[..., self.size :].exp())

    def free_scale(self, natural: Tensor) -> Tensor:
        """σ for the means, 1 for the log standard deviations."""
        scale = self._split(natural)[1].rsqrt()
        return torch.cat([scale, torch.ones_like(scale)], -1)

    def is_proper(self, natural: Tensor) -> Tensor:
        """All precisions positive and everything finite."""
        return (self._split(natural)[1] > 0).all(-1) & torch.isfinite(natural).all(-1)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """The smallest λ_i / -Δλ_i over the shrinking precisions."""
        precision, change = self._split(natural)[1], self._split(delta)[1]
        ratio = torch.where(change < 0, precision / -change, torch.full_like(precision, math.inf))
        return ratio.amin(-1)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """m + σ ε, ``[*sample_shape, ..., size]``."""
        shape = (*sample_shape, *natural.shape[:-1], self.size)
        noise = torch.randn(shape, generator=generator, dtype=natural.dtype, device=natural.device)
        return self.from_noise(natural, noise)

    def from_noise(self, natural: Tensor, noise: Tensor) -> Tensor:
        """m + σ ε."""
        h, precision = self._split(natural)
        return h / precision + precision.rsqrt() * noise

    def draw(self, free: Tensor, noise: Tensor) -> Tensor:
        """m + σ ε."""
        loc, log_scale = free.split(self.size, -1)
        return loc + log_scale.exp() * noise

    def free_regulariser(self, free: Tensor, cavity: Tensor) -> Tensor:
        """h_cav·m - ½ λ_cav·(m² + σ²) + Σ (log σ + ½ log 2πe), nats."""
        loc, log_scale = free.split(self.size, -1)
        linear, quadratic = cavity.split(self.size, -1)
        terms = linear * loc + quadratic * (loc * loc + (2 * log_scale).exp()) + log_scale
        return terms.sum(-1) + 0.5 * self.size * math.log(2 * math.pi * math.e)

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``Normal(loc, scale)`` of the given event shape."""
        shape = (self.size,) if shape is None else shape
        batch = natural.shape[:-1]
        loc, scale = (value.reshape((*batch, *shape)) for value in self.standard(natural).values())
        normal = torch.distributions.Normal(loc, scale)
        return torch.distributions.Independent(normal, len(shape)) if shape else normal

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple["DiagonalGaussian", Tensor]:
        """The pieces of h and λ."""
        pieces = [natural[..., start:stop], natural[..., self.size + start : self.size + stop]]
        return DiagonalGaussian(stop - start), torch.cat(pieces, -1)

    def interior(self, like: Tensor) -> Tensor:
        """The origin."""
        return torch.zeros(self.size, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η from gradients at 0 and 1: ∇ log q(x) = h - λ x."""
        zero = self.interior(like)
        gradient = torch.func.grad(log_density)
        h = gradient(zero)
        precision = h - gradient(torch.ones_like(zero))
        return torch.cat([h, -0.5 * precision])

    def location(self, natural: Tensor) -> Tensor:
        """The mean m, ``[..., size]``."""
        h, precision = self._split(natural)
        return h / precision

    def variance(self, natural: Tensor) -> Tensor:
        """1/λ, ``[..., size]``."""
        return self._split(natural)[1].reciprocal()

    def predictor_variance(self, natural: Tensor, design: Tensor, squares: Tensor | None = None) -> Tensor:
        """Σ_j A_ij² σ_j², ``[..., n]``."""
        return predicted(design.square() if squares is None else squares, self.variance(natural))

    def quadratic(
        self, gradient: Tensor, design: Tensor, weights: Tensor, at: Tensor, squares: Tensor | None = None
    ) -> Tensor:
        """η of exp(g·(x - a) - ½ Σ_ij w_i A_ij² (x_j - a_j)²)."""
        precision = combined(design.square() if squares is None else squares, weights)
        return torch.cat([gradient + precision * at, -0.5 * precision], -1)

    def relocate(self, natural: Tensor, loc: Tensor) -> Tensor:
        """(λ m, -½ λ)."""
        return torch.cat([self._split(natural)[1] * loc, natural[..., self.size :]], -1)

    def precision_matrix(self, natural: Tensor) -> Tensor:
        """diag λ, ``[..., size, size]``."""
        return torch.diag_embed(self._split(natural)[1])
