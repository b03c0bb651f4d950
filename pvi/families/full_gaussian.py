"""Gaussian with full covariance: T(x) = (x, x_i x_j for i ≥ j), η = (Λm, -½ Λ_ii and -Λ_ij for i > j).

Only the lower triangle is stored: the family is minimal, and a message is half as long.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families.diagonal_gaussian import DiagonalGaussian
from pvi.families.protocol import Family
from pvi.families.rows import curvature
from pvi.families.triangle import fill, pack, symmetric


@dataclass(frozen=True)
class FullGaussian:
    """Gaussian over a vector of length ``size``; natural parameters ``[..., size + size (size + 1) / 2]``."""

    size: int

    @property
    def num_natural(self) -> int:
        """d + d(d+1)/2."""
        return self.size + self.size * (self.size + 1) // 2

    @property
    def num_free(self) -> int:
        """d + d(d+1)/2: mean and Cholesky factor with log diagonal."""
        return self.num_natural

    def precision_matrix(self, natural: Tensor) -> Tensor:
        """Λ, ``[..., size, size]``."""
        lower = fill(-natural[..., self.size :], self.size)
        return lower + lower.mT

    def _natural(self, h: Tensor, precision: Tensor) -> Tensor:
        halved = precision - 0.5 * torch.diag_embed(precision.diagonal(dim1=-2, dim2=-1))
        return torch.cat([h, -pack(halved)], -1)

    def _factorise(self, natural: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Precision's Cholesky factor, the mean, and whether the factorisation exists."""
        cholesky, info = torch.linalg.cholesky_ex(self.precision_matrix(natural))
        loc = torch.cholesky_solve(natural[..., : self.size, None], cholesky)[..., 0]
        return cholesky, loc, info == 0

    def statistics(self, x: Tensor) -> Tensor:
        """(x, x_i x_j for i ≥ j)."""
        return torch.cat([x, pack(x[..., :, None] * x[..., None, :])], -1)

    def log_partition(self, natural: Tensor) -> Tensor:
        """½ (h·Λ⁻¹h - log|Λ| + d log 2π), nats."""
        cholesky, loc, proper = self._factorise(natural)
        log_det = 2 * cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        inner = (natural[..., : self.size] * loc).sum(-1)
        value = 0.5 * (inner - log_det + self.size * math.log(2 * math.pi))
        proper = proper & torch.isfinite(natural).all(-1)
        return torch.where(proper, value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """(m, Σ_ij + m_i m_j)."""
        cholesky, loc, _ = self._factorise(natural)
        second = _inverse(cholesky) + loc[..., :, None] * loc[..., None, :]
        return torch.cat([loc, pack(second)], -1)

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from (m, Σ + m mᵀ)."""
        loc, second = mean[..., : self.size], symmetric(mean[..., self.size :], self.size)
        return self.natural_from_standard(loc=loc, covariance_matrix=second - loc[..., :, None] * loc[..., None, :])

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """The derivative of η along dμ = g: dΛ = -Λ dΣ Λ and dh = dΛ m + Λ dm with dΣ = dS - dm mᵀ - m dmᵀ."""
        precision, loc = self.precision_matrix(natural), self.location(natural)
        change = gradient[..., : self.size]
        outer = change[..., :, None] * loc[..., None, :]
        spread = symmetric(gradient[..., self.size :], self.size) - outer - outer.mT
        turned = -precision @ spread @ precision
        h = (turned @ loc[..., None] + precision @ change[..., None])[..., 0]
        return self._natural(h, 0.5 * (turned + turned.mT))

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """m and the diagonal of Σ."""
        cholesky, loc, _ = self._factorise(natural)
        return loc, _inverse_diagonal(cholesky)

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``loc [..., size]`` and ``covariance_matrix [..., size, size]``."""
        cholesky, loc, _ = self._factorise(natural)
        return {"loc": loc, "covariance_matrix": _inverse(cholesky)}

    def natural_from_standard(self, *, loc: Tensor, covariance_matrix: Tensor) -> Tensor:
        """η from ``loc`` and ``covariance_matrix``."""
        precision = _inverse(torch.linalg.cholesky(covariance_matrix))
        precision = 0.5 * (precision + precision.mT)
        return self._natural((precision @ loc[..., None])[..., 0], precision)

    def natural_from_precision(self, *, loc: Tensor, precision_matrix: Tensor) -> Tensor:
        """η from ``loc`` and a symmetric ``precision_matrix``, which need not be positive definite."""
        return self._natural((precision_matrix @ loc[..., None])[..., 0], precision_matrix)

    def free(self, natural: Tensor) -> Tensor:
        """(m, the Cholesky factor of Σ with its diagonal logged)."""
        cholesky = torch.linalg.cholesky(self.standard(natural)["covariance_matrix"])
        logged = cholesky.tril(-1) + torch.diag_embed(cholesky.diagonal(dim1=-2, dim2=-1).log())
        return torch.cat([self.location(natural), pack(logged)], -1)

    def _cholesky(self, free: Tensor) -> tuple[Tensor, Tensor]:
        """m and the Cholesky factor L of Σ."""
        loc, lower = free[..., : self.size], fill(free[..., self.size :], self.size)
        return loc, lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η from :meth:`free`'s coordinates."""
        loc, cholesky = self._cholesky(free)
        precision = _inverse(cholesky)
        return self._natural((precision @ loc[..., None])[..., 0], precision)

    def free_scale(self, natural: Tensor) -> Tensor:
        """Standard deviations for the means and the rows of the Cholesky factor, 1 for its logged diagonal."""
        scale = self.variance(natural).sqrt()
        rows = scale[..., :, None].expand(*scale.shape, self.size)
        triangle = rows.tril(-1) + torch.diag_embed(torch.ones_like(scale))
        return torch.cat([scale, pack(triangle)], -1)

    def is_proper(self, natural: Tensor) -> Tensor:
        """The precision has a Cholesky factor and everything is finite."""
        _, info = torch.linalg.cholesky_ex(self.precision_matrix(natural))
        return (info == 0) & torch.isfinite(natural).all(-1)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """1 / -λ_min of L⁻¹ ΔΛ L⁻ᵀ where Λ = L Lᵀ."""
        cholesky, _, _ = self._factorise(natural)
        half = torch.linalg.solve_triangular(cholesky, self.precision_matrix(delta), upper=False)
        change = torch.linalg.solve_triangular(cholesky, half.mT, upper=False)
        smallest = torch.linalg.eigvalsh(0.5 * (change + change.mT))[..., 0]
        infinite = torch.full_like(smallest, math.inf)
        return torch.where(smallest < 0, -1 / smallest, infinite)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """m + L⁻ᵀ ε with Λ = L Lᵀ, ``[*sample_shape, ..., size]``."""
        shape = (*sample_shape, *natural.shape[:-1], self.size)
        noise = torch.randn(shape, generator=generator, dtype=natural.dtype, device=natural.device)
        return self.from_noise(natural, noise)

    def from_noise(self, natural: Tensor, noise: Tensor) -> Tensor:
        """m + L⁻ᵀ ε with Λ = L Lᵀ."""
        cholesky, loc, _ = self._factorise(natural)
        if natural.ndim == 1:  # one factorisation for all draws, which broadcasting would copy for each
            flat = torch.linalg.solve_triangular(cholesky.mT, noise.reshape(-1, self.size).mT, upper=True)
            return loc + flat.mT.reshape(noise.shape)
        return loc + torch.linalg.solve_triangular(cholesky.mT, noise[..., None], upper=True)[..., 0]

    def draw(self, free: Tensor, noise: Tensor) -> Tensor:
        """m + L ε with Σ = L Lᵀ."""
        loc, cholesky = self._cholesky(free)
        return loc + noise @ cholesky.mT if free.ndim == 1 else loc + (cholesky @ noise[..., None])[..., 0]

    def free_regulariser(self, free: Tensor, cavity: Tensor) -> Tensor:
        """η_cav·(m, Σ + m mᵀ) + log|L| + ½ d log 2πe, nats."""
        loc, cholesky = self._cholesky(free)
        mean = torch.cat([loc, pack(cholesky @ cholesky.mT + loc[..., :, None] * loc[..., None, :])], -1)
        log_det = fill(free[..., self.size :], self.size).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (cavity * mean).sum(-1) + log_det + 0.5 * self.size * math.log(2 * math.pi * math.e)

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``MultivariateNormal(loc, covariance_matrix)``, reshaped where the event is not a vector."""
        shape = (self.size,) if shape is None else shape
        if self.size == 1:
            family, part = self.marginal(natural, 0, 1)
            return family.distribution(part, shape)
        loc, covariance = self.standard(natural).values()
        normal = torch.distributions.MultivariateNormal(loc, covariance)
        if len(shape) == 1:
            return normal
        reshape = torch.distributions.transforms.ReshapeTransform(torch.Size((self.size,)), torch.Size(shape))
        return torch.distributions.TransformedDistribution(normal, [reshape])

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """The block of m and Σ; a single coordinate is a :class:`DiagonalGaussian`."""
        standard = self.standard(natural)
        loc, block = standard["loc"][..., start:stop], standard["covariance_matrix"][..., start:stop, start:stop]
        if stop - start == 1:
            one = DiagonalGaussian(1)
            return one, one.natural_from_standard(loc=loc, scale=block[..., 0].sqrt())
        family = FullGaussian(stop - start)
        return family, family.natural_from_standard(loc=loc, covariance_matrix=block)

    def interior(self, like: Tensor) -> Tensor:
        """The origin."""
        return torch.zeros(self.size, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η from the gradients at 0 and at the unit vectors: ∇ log q(x) = h - Λ x."""
        zero = self.interior(like)
        gradient = torch.func.grad(log_density)
        h = gradient(zero)
        precision = torch.stack([h - gradient(row) for row in torch.eye(self.size).to(zero)])
        return self._natural(h, 0.5 * (precision + precision.mT))

    def location(self, natural: Tensor) -> Tensor:
        """The mean m, ``[..., size]``."""
        return self._factorise(natural)[1]

    def variance(self, natural: Tensor) -> Tensor:
        """The diagonal of Λ⁻¹, ``[..., size]``."""
        return _inverse_diagonal(self._factorise(natural)[0])

    def predictor_variance(self, natural: Tensor, design: Tensor, squares: Tensor | None = None) -> Tensor:
        """A_i·Σ A_i, ``[..., n]``."""
        cholesky, _, _ = self._factorise(natural)
        return torch.linalg.solve_triangular(cholesky, design.mT, upper=False).square().sum(-2)

    def quadratic(
        self, gradient: Tensor, design: Tensor, weights: Tensor, at: Tensor, squares: Tensor | None = None
    ) -> Tensor:
        """η of exp(g·(x - a) - ½ Σ_i w_i (A_i·(x - a))²)."""
        precision = curvature(design, weights)
        return self._natural(gradient + (precision @ at[..., None])[..., 0], precision)

    def relocate(self, natural: Tensor, loc: Tensor) -> Tensor:
        """(Λ m, Λ)."""
        h = (self.precision_matrix(natural) @ loc[..., None])[..., 0]
        return torch.cat([h, natural[..., self.size :]], -1)


def _inverse(cholesky: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹; ``torch.cholesky_inverse`` has wrong derivatives in forward mode (torch 2.14)."""
    return torch.cholesky_solve(_eye(cholesky), cholesky)


def _inverse_diagonal(cholesky: Tensor) -> Tensor:
    """The diagonal of (L Lᵀ)⁻¹, the squared columns of L⁻¹."""
    return torch.linalg.solve_triangular(cholesky, _eye(cholesky), upper=False).square().sum(-2)


def _eye(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device).expand_as(like)
