"""Bernoulli laws of zeros and ones: T(x) = x, η = logit p, with respect to counting measure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families.discrete import all_rows
from pvi.families.protocol import Family


@dataclass(frozen=True)
class Bernoulli:
    """Independent Bernoullis over ``size`` numbers that are 0.0 or 1.0; natural parameters ``[..., size]``.

    >>> Bernoulli(1).natural_from_standard(probs=torch.tensor([0.5]))
    tensor([0.])
    """

    size: int

    @property
    def num_natural(self) -> int:
        """One a number."""
        return self.size

    @property
    def num_free(self) -> int:
        """One a number: its logit."""
        return self.size

    def statistics(self, x: Tensor) -> Tensor:
        """x."""
        return x

    def log_partition(self, natural: Tensor) -> Tensor:
        """Σ log(1 + exp η), nats."""
        value = torch.nn.functional.softplus(natural).sum(-1)
        return torch.where(self.is_proper(natural), value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """p."""
        return torch.sigmoid(natural)

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from p."""
        return mean.log() - torch.log1p(-mean)

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """g / (p (1 - p))."""
        return gradient / (torch.sigmoid(natural) * torch.sigmoid(-natural))

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """p and p (1 - p)."""
        return torch.sigmoid(natural), torch.sigmoid(natural) * torch.sigmoid(-natural)

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``probs`` p, ``[..., size]``."""
        return {"probs": torch.sigmoid(natural)}

    def natural_from_standard(self, *, probs: Tensor) -> Tensor:
        """η from ``probs``."""
        return self.natural_from_mean(probs)

    def free(self, natural: Tensor) -> Tensor:
        """η itself, which is unconstrained."""
        return natural

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η itself."""
        return free

    def free_scale(self, natural: Tensor) -> Tensor:
        """Ones: Fisher's standard deviation is 2 or more and grows without bound as p nears 0 or 1."""
        return torch.ones_like(natural)

    def is_proper(self, natural: Tensor) -> Tensor:
        """Everything is finite."""
        return torch.isfinite(natural).all(-1)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """Infinite: every finite η is proper."""
        return torch.full_like((natural + delta)[..., 0], math.inf)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Zeros and ones ``[*sample_shape, ..., size]``, without a derivative."""
        probs = torch.sigmoid(natural.detach()).expand((*sample_shape, *natural.shape))
        uniform = torch.rand(probs.shape, generator=generator, dtype=natural.dtype, device=natural.device)
        return (uniform < probs).to(natural.dtype)

    def enumerate(self, like: Tensor | None = None) -> Tensor:
        """All values ``[2^size, size]``; raises ``ValueError`` beyond 2^16."""
        return all_rows([2] * self.size, like)

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``Bernoulli(logits)`` of the given event shape."""
        shape = (self.size,) if shape is None else shape
        bernoulli = torch.distributions.Bernoulli(logits=natural.reshape((*natural.shape[:-1], *shape)))
        return torch.distributions.Independent(bernoulli, len(shape)) if shape else bernoulli

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """The piece of η."""
        return Bernoulli(stop - start), natural[..., start:stop]

    def interior(self, like: Tensor) -> Tensor:
        """Zeros."""
        return torch.zeros(self.size, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η_i from the values at zero and at the i-th unit vector."""
        zero = self.interior(like)
        unit = torch.eye(self.size, dtype=like.dtype, device=like.device)
        return torch.stack([log_density(row) for row in unit]) - log_density(zero)
