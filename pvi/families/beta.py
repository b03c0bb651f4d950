"""Beta laws of numbers in (0, 1): T(x) = (log x, log(1 - x)), η = (a - 1, b - 1)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families import concentrations
from pvi.families.edges import first_crossing, inside_unit
from pvi.families.protocol import Family


@dataclass(frozen=True)
class Beta:
    """Independent Betas with concentrations a (of x) and b (of 1 - x); natural parameters ``[..., 2 * size]``.

    >>> Beta(1).natural_from_standard(concentration1=torch.tensor([3.0]), concentration0=torch.tensor([2.0]))
    tensor([2., 1.])
    """

    size: int

    @property
    def num_natural(self) -> int:
        """Two a number."""
        return 2 * self.size

    @property
    def num_free(self) -> int:
        """Two a number: logit of the mean and log concentration."""
        return 2 * self.size

    def _pairs(self, flat: Tensor) -> Tensor:
        """``[..., 2 * size] -> [..., size, 2]``."""
        return torch.stack(flat.split(self.size, -1), -1)

    def _flat(self, pairs: Tensor) -> Tensor:
        return torch.cat([pairs[..., 0], pairs[..., 1]], -1)

    def statistics(self, x: Tensor) -> Tensor:
        """(log x, log(1 - x))."""
        return torch.cat([x.log(), torch.log1p(-x)], -1)

    def log_partition(self, natural: Tensor) -> Tensor:
        """Σ log B(a, b), nats."""
        value = concentrations.log_normaliser(self._pairs(natural) + 1).sum(-1)
        return torch.where(self.is_proper(natural), value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """(ψ(a) - ψ(a + b), ψ(b) - ψ(a + b))."""
        return self._flat(concentrations.mean_log(self._pairs(natural) + 1))

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from (E[log x], E[log(1 - x)])."""
        return self._flat(concentrations.from_mean_log(self._pairs(mean)) - 1)

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """F⁻¹ g, one 2 x 2 system a number."""
        return self._flat(concentrations.solve_fisher(self._pairs(natural) + 1, self._pairs(gradient)))

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """m = a/(a + b) and m (1 - m)/(a + b + 1)."""
        alpha = self._pairs(natural) + 1
        total = alpha.sum(-1)
        return alpha[..., 0] / total, alpha.prod(-1) / (total.square() * (total + 1))

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``concentration1`` a and ``concentration0`` b, each ``[..., size]``."""
        a, b = (natural + 1).split(self.size, -1)
        return {"concentration1": a, "concentration0": b}

    def natural_from_standard(self, *, concentration1: Tensor, concentration0: Tensor) -> Tensor:
        """η from ``concentration1`` and ``concentration0``."""
        return torch.cat([concentration1, concentration0], -1) - 1

    def free(self, natural: Tensor) -> Tensor:
        """(log a/b, log (a + b)/2): the mean and the concentration, nearly orthogonal in Fisher's information."""
        return self._flat(concentrations.free(self._pairs(natural) + 1))

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η from :meth:`free`'s coordinates."""
        return self._flat(concentrations.from_free(self._pairs(free)) - 1)

    def free_scale(self, natural: Tensor) -> Tensor:
        """Fisher's standard deviation of the logit of the mean, 1 for the log concentration."""
        return self._flat(concentrations.free_scale(self._pairs(natural) + 1))

    def is_proper(self, natural: Tensor) -> Tensor:
        """All concentrations positive and finite."""
        return (natural > -1).all(-1) & torch.isfinite(natural).all(-1)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """Where the first concentration reaches zero."""
        return first_crossing(natural + 1, delta)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """G(a)/(G(a) + G(b)), ``[*sample_shape, ..., size]``."""
        return inside_unit(concentrations.log_draws(self._pairs(natural) + 1, sample_shape, generator)[..., 0].exp())

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``Beta(concentration1, concentration0)`` of the given event shape."""
        shape = (self.size,) if shape is None else shape
        a, b = (value.reshape((*natural.shape[:-1], *shape)) for value in self.standard(natural).values())
        beta = torch.distributions.Beta(a, b)
        return torch.distributions.Independent(beta, len(shape)) if shape else beta

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """The pieces of both blocks."""
        pieces = [natural[..., start:stop], natural[..., self.size + start : self.size + stop]]
        return Beta(stop - start), torch.cat(pieces, -1)

    def interior(self, like: Tensor) -> Tensor:
        """Halves."""
        return torch.full((self.size,), 0.5, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η from gradients at ¼ and ¾: ∇ log q(x) = η_1/x - η_2/(1 - x)."""
        half = self.interior(like)
        gradient = torch.func.grad(log_density)
        # (4 η_1 - 4/3 η_2, 4/3 η_1 - 4 η_2)
        low, high = gradient(0.5 * half), gradient(1.5 * half)
        return torch.cat([9 * low - 3 * high, 3 * low - 9 * high]) / 32
