"""Anderson acceleration of the synchronous map, federated (Anderson, 1965; Walker and Ni, 2011).

A synchronous round maps the factors x = (η_1, ..., η_M) to x + Δ. Anderson's method takes the next x as Σ_k α_k (x_k +
Δ_k) over the last rounds, with Σ α_k = 1 and |Σ_k α_k Δ_k| smallest. The norm needs only inner products, which are sums
of per-client numbers: the server sees these sums, never a factor, and sends the α_k back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.factors import Factor, multiply, power
from pvi.families import Family

RIDGE = 1e-12
"""Relative to the trace of the products: what two equal rounds would make singular."""


@dataclass(frozen=True)
class Anderson:
    """Mixes the last ``memory`` + 1 rounds; 5 is usual, more helps where clients differ much."""

    memory: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.memory, int) or self.memory < 1:
            raise ValueError(f"Anderson: memory must be a whole number, at least 1, got {self.memory!r}")

    @property
    def name(self) -> str:
        """``anderson``."""
        return "anderson"


class Visit(NamedTuple):
    """What a client (or the server, for the sums) remembers of a round: where it stood, and its damped change.

    ``conditional`` is the η of q(z | θ) that it came to, where the client has latents of its own.
    """

    factor: Factor
    delta: Factor
    conditional: Tensor | None = None
    damping: float = 1.0


class Memory(NamedTuple):
    """The visits of the last rounds: each client's with the client, the server's own factor's, and the sums of all."""

    clients: dict[str, tuple[Visit, ...]]
    own: tuple[Visit, ...]
    server: tuple[Visit, ...]

    def last(self) -> "Memory":
        """The newest round alone."""
        return Memory({name: visits[-1:] for name, visits in self.clients.items()}, self.own[-1:], self.server[-1:])


def inner_products(past: Sequence[Visit], family: Family, natural: Tensor) -> Tensor:
    """⟨Δ_k, Δ_l⟩ ``[k, k]`` of one client's changes, in the Fisher metric of q: what the client sends.

    |Δη|² in that metric is twice the KL divergence that the change of q makes, whatever the units of the columns.
    """
    # Undamped: a round is no nearer to the fixed point for being damped more.
    deltas = torch.stack([visit.delta.natural / visit.damping for visit in past])
    pull = torch.func.vjp(family.mean_parameters, natural)[1]
    metric = torch.func.vmap(lambda delta: pull(delta)[0])(deltas)
    return deltas @ metric.mT


def coefficients(products: Tensor) -> Tensor:
    """The α ``[k]`` with Σ α = 1 that make αᵀ G α smallest, from the sum G ``[k, k]`` of all clients' products."""
    matrix = products.to(torch.float64)
    still = (matrix.diagonal() < torch.finfo(torch.float64).tiny).nonzero()
    if len(still):  # a round that changed nothing is a fixed point
        return torch.zeros_like(products[0]).index_fill(0, still[-1], 1.0)
    # Scaled, so that rounds of very different lengths can be told apart.
    scale = matrix.diagonal().rsqrt()
    size = len(matrix)
    scaled = scale[:, None] * matrix * scale + RIDGE * torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    found = torch.linalg.lstsq(scaled, scale[:, None], driver="gelsd" if matrix.device.type == "cpu" else None)
    weights = scale * found.solution[:, 0]
    return (weights / weights.sum()).to(products)


def mixed(past: Sequence[Visit], alpha: Tensor) -> Factor:
    """Σ_k α_k (x_k + Δ_k)."""
    parts = [
        power(multiply(visit.factor, visit.delta), float(weight)) for visit, weight in zip(past, alpha, strict=True)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = multiply(total, part)
    return total


def mixed_conditional(past: Sequence[Visit], alpha: Tensor) -> Tensor | None:
    """Σ_k α_k η_k of q(z | θ): a client's own latents follow its factor."""
    parts = [visit.conditional for visit in past]
    if any(part is None for part in parts):
        return None
    return torch.tensordot(alpha, torch.stack([part for part in parts if part is not None]), dims=1)


def resolve_acceleration(acceleration: "Anderson | str | None") -> "Anderson | None":
    """``None``, ``"anderson"`` or the object itself; raises ``ValueError`` for another name."""
    if not isinstance(acceleration, str):
        return acceleration
    if acceleration != "anderson":
        raise ValueError(f"unknown acceleration {acceleration!r}; there is 'anderson', or pvi.Anderson(memory=5)")
    return Anderson()
