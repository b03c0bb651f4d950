"""Dirichlet laws of probability vectors: T(x) = log x, η = α - 1."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families import concentrations
from pvi.families.beta import Beta
from pvi.families.concatenated import Concatenated
from pvi.families.edges import first_crossing, inside_unit
from pvi.families.protocol import Family


@dataclass(frozen=True)
class Dirichlet:
    """Independent Dirichlets, one a row; natural parameters ``[..., rows * categories]``.

    x holds the whole probability vectors, row by row; its density is one with respect to Lebesgue measure on the first
    ``categories - 1`` coordinates of each, as in ``torch.distributions``.

    >>> Dirichlet(3).natural_from_standard(concentration=torch.tensor([[3.0, 2.0, 1.0]]))
    tensor([2., 1., 0.])
    """

    categories: int
    rows: int = 1

    def __post_init__(self) -> None:
        if self.categories < 2 or self.rows < 1:
            raise ValueError(f"a Dirichlet needs two categories and one row at least, got {self}")

    @property
    def size(self) -> int:
        """Length of x: the whole probability vectors."""
        return self.rows * self.categories

    @property
    def num_natural(self) -> int:
        """One a category and row."""
        return self.size

    @property
    def num_free(self) -> int:
        """One a category and row: log ratios and a log concentration."""
        return self.size

    def _rows(self, flat: Tensor) -> Tensor:
        return flat.reshape((*flat.shape[:-1], self.rows, self.categories))

    def _flat(self, rows: Tensor) -> Tensor:
        return rows.reshape((*rows.shape[:-2], self.size))

    def statistics(self, x: Tensor) -> Tensor:
        """log x."""
        return x.log()

    def log_partition(self, natural: Tensor) -> Tensor:
        """Σ log B(α), nats."""
        value = concentrations.log_normaliser(self._rows(natural) + 1).sum(-1)
        return torch.where(self.is_proper(natural), value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """ψ(α_k) - ψ(Σ α)."""
        return self._flat(concentrations.mean_log(self._rows(natural) + 1))

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from E[log x]."""
        return self._flat(concentrations.from_mean_log(self._rows(mean)) - 1)

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """F⁻¹ g, row by row."""
        return self._flat(concentrations.solve_fisher(self._rows(natural) + 1, self._rows(gradient)))

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """m = α/Σα and m (1 - m)/(Σα + 1)."""
        alpha = self._rows(natural) + 1
        total = alpha.sum(-1, keepdim=True)
        variance = alpha * (total - alpha) / (total.square() * (total + 1))
        return self._flat(alpha / total), self._flat(variance)

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``concentration`` α, ``[..., rows, categories]``."""
        return {"concentration": self._rows(natural) + 1}

    def natural_from_standard(self, *, concentration: Tensor) -> Tensor:
        """η from ``concentration``."""
        return self._flat(concentration - 1)

    def free(self, natural: Tensor) -> Tensor:
        """A row's log α_k/α_K and the log of its mean α: see :func:`pvi.families.concentrations.free`."""
        return self._flat(concentrations.free(self._rows(natural) + 1))

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η from :meth:`free`'s coordinates."""
        return self._flat(concentrations.from_free(self._rows(free)) - 1)

    def free_scale(self, natural: Tensor) -> Tensor:
        """Fisher's standard deviations of the log ratios, 1 for the log concentrations."""
        return self._flat(concentrations.free_scale(self._rows(natural) + 1))

    def is_proper(self, natural: Tensor) -> Tensor:
        """All concentrations positive and finite."""
        return (natural > -1).all(-1) & torch.isfinite(natural).all(-1)

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """Where the first concentration reaches zero."""
        return first_crossing(natural + 1, delta)

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Normalised Gamma draws, ``[*sample_shape, ..., size]``."""
        log_x = concentrations.log_draws(self._rows(natural) + 1, sample_shape, generator)
        return inside_unit(self._flat(log_x.exp()))

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``Dirichlet(concentration)``, reshaped where the event's last axis is not the categories."""
        shape = (self.size,) if shape is None else shape
        alpha = self._rows(natural) + 1
        if shape[-1:] == (self.categories,):
            rows = torch.distributions.Dirichlet(alpha.reshape((*natural.shape[:-1], *shape)))
            return torch.distributions.Independent(rows, len(shape) - 1) if len(shape) > 1 else rows
        flat = Concatenated([torch.distributions.Dirichlet(row) for row in alpha.unbind(-2)])
        if shape == (self.size,):
            return flat
        reshape = torch.distributions.transforms.ReshapeTransform(torch.Size((self.size,)), torch.Size(shape))
        return torch.distributions.TransformedDistribution(flat, [reshape])

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """Whole rows; or one coordinate, which is a Beta. Raises ``ValueError`` for other pieces of a row."""
        if start % self.categories == 0 and stop % self.categories == 0:
            return Dirichlet(self.categories, (stop - start) // self.categories), natural[..., start:stop]
        if stop - start > 1:
            raise ValueError(f"x[{start}:{stop}] is neither whole rows of {self} nor one coordinate")
        row = self._rows(natural)[..., start // self.categories, :] + 1
        alpha = natural[..., start:stop] + 1
        return Beta(1), torch.cat([alpha, row.sum(-1, keepdim=True) - alpha], -1) - 1

    def interior(self, like: Tensor) -> Tensor:
        """Uniform probabilities."""
        return torch.full((self.size,), 1 / self.categories, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η from gradients at two points, along the simplex only: η_k/x_k - η_K/x_K."""
        centre = self.interior(like)
        # Half of the last category's probability goes to the others.
        share = torch.ones(self.categories, dtype=like.dtype, device=like.device) + 0.5 / (self.categories - 1)
        share[-1] = 0.5
        first, second = (self._along(log_density, x) for x in (centre, centre * share.repeat(self.rows)))
        # With u = K (η_k - η_K) the second is (u + K η_K)/s_k - K η_K/s_K.
        ratio = (second - first / share[:-1]) / (1 / share[:-1] - 2)
        last = ratio.mean(-1, keepdim=True) / self.categories
        return self._flat(torch.cat([first / self.categories + last, last], -1))

    def _along(self, log_density: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Derivatives towards each category and away from the last, ``[rows, categories - 1]``."""
        gradient = self._rows(torch.func.grad(log_density)(x))
        return gradient[..., :-1] - gradient[..., -1:]
