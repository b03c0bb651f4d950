"""Categorical laws: T(x) = (1[x = k] for k < K - 1), η_k = log p_k/p_K, with respect to counting measure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families.discrete import all_rows
from pvi.families.protocol import Family


@dataclass(frozen=True)
class Categorical:
    """Independent Categoricals over ``categories``, one a row; natural parameters ``[..., rows * (categories - 1)]``.

    x holds each row's index as a float. The last category is the reference, which keeps the family minimal.

    >>> Categorical(3).natural_from_standard(probs=torch.tensor([[0.25, 0.5, 0.25]]))
    tensor([0.0000, 0.6931])
    """

    categories: int
    rows: int = 1

    def __post_init__(self) -> None:
        if self.categories < 2 or self.rows < 1:
            raise ValueError(f"a Categorical needs two categories and one row at least, got {self}")

    @property
    def size(self) -> int:
        """One index a row."""
        return self.rows

    @property
    def num_natural(self) -> int:
        """One a row and category but the last."""
        return self.rows * (self.categories - 1)

    @property
    def num_free(self) -> int:
        """As many: η is unconstrained."""
        return self.num_natural

    def _rows(self, flat: Tensor) -> Tensor:
        return flat.reshape((*flat.shape[:-1], self.rows, self.categories - 1))

    def _flat(self, rows: Tensor) -> Tensor:
        return rows.reshape((*rows.shape[:-2], self.num_natural))

    def _logits(self, natural: Tensor) -> Tensor:
        """``[..., rows, categories]``, the last one zero."""
        return torch.nn.functional.pad(self._rows(natural), (0, 1))

    def statistics(self, x: Tensor) -> Tensor:
        """Indicators of all categories but the last."""
        index = torch.arange(self.categories - 1, dtype=x.dtype, device=x.device)
        return self._flat((x[..., None] == index).to(x.dtype))

    def log_partition(self, natural: Tensor) -> Tensor:
        """Σ log(1 + Σ_k exp η_k), nats."""
        value = torch.logsumexp(self._logits(natural), -1).sum(-1)
        return torch.where(self.is_proper(natural), value, torch.full_like(value, math.inf))

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """p_k for k < K - 1."""
        return self._flat(torch.softmax(self._logits(natural), -1)[..., :-1])

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """η from p."""
        probs = self._rows(mean)
        return self._flat(probs.log() - torch.log1p(-probs.sum(-1, keepdim=True)))

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """F = diag p - p pᵀ has the inverse diag 1/p + 11ᵀ/p_K."""
        probs = torch.softmax(self._logits(natural), -1)
        rows = self._rows(gradient)
        return self._flat(rows / probs[..., :-1] + rows.sum(-1, keepdim=True) / probs[..., -1:])

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the index."""
        probs = torch.softmax(self._logits(natural), -1)
        index = torch.arange(self.categories, dtype=natural.dtype, device=natural.device)
        mean = (probs * index).sum(-1)
        return mean, (probs * (index - mean[..., None]).square()).sum(-1)

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """``probs`` p, ``[..., rows, categories]``."""
        return {"probs": torch.softmax(self._logits(natural), -1)}

    def natural_from_standard(self, *, probs: Tensor) -> Tensor:
        """η from ``probs``."""
        return self._flat(probs[..., :-1].log() - probs[..., -1:].log())

    def free(self, natural: Tensor) -> Tensor:
        """η itself, which is unconstrained."""
        return natural

    def natural_from_free(self, free: Tensor) -> Tensor:
        """η itself."""
        return free

    def free_scale(self, natural: Tensor) -> Tensor:
        """Ones: Fisher's standard deviations exceed 1 and grow without bound as a probability nears 0."""
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
        """Indices ``[*sample_shape, ..., rows]`` as floats, without a derivative."""
        below = torch.softmax(self._logits(natural.detach()), -1).cumsum(-1)[..., :-1]
        shape = (*sample_shape, *below.shape[:-1])
        uniform = torch.rand(shape, generator=generator, dtype=natural.dtype, device=natural.device)
        return (uniform[..., None] >= below).sum(-1).to(natural.dtype)

    def enumerate(self, like: Tensor | None = None) -> Tensor:
        """All values ``[categories^rows, rows]``; raises ``ValueError`` beyond 2^16."""
        return all_rows([self.categories] * self.rows, like)

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """``Categorical(logits)`` of the given event shape."""
        shape = (self.size,) if shape is None else shape
        logits = self._logits(natural).reshape((*natural.shape[:-1], *shape, self.categories))
        categorical = torch.distributions.Categorical(logits=logits)
        return torch.distributions.Independent(categorical, len(shape)) if shape else categorical

    def marginal(self, natural: Tensor, start: int, stop: int) -> tuple[Family, Tensor]:
        """The rows' pieces of η."""
        each = self.categories - 1
        return Categorical(self.categories, stop - start), natural[..., each * start : each * stop]

    def interior(self, like: Tensor) -> Tensor:
        """Every row's first category."""
        return torch.zeros(self.size, dtype=like.dtype, device=like.device)

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η from the values with every row in its last category, and with one row at a time in another."""
        last = torch.full((self.size,), float(self.categories - 1), dtype=like.dtype, device=like.device)
        row = torch.eye(self.rows, dtype=torch.bool, device=like.device)
        points = [torch.where(row[i], float(k), last) for i in range(self.rows) for k in range(self.categories - 1)]
        return torch.stack([log_density(x) for x in points]) - log_density(last)
