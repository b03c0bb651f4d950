"""The server: it holds the prior and q, and nothing of any client's."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.aggregators import Aggregator
from pvi.client import Update
from pvi.factors import Factor
from pvi.posterior import Posterior


class ServerState(NamedTuple):
    """Prior, approximate posterior, and the number of steps taken."""

    prior: Posterior
    posterior: Posterior
    version: int


class ServerInfo(NamedTuple):
    """The fraction of the summed change that kept q proper, and max |Δη| of what was applied."""

    step_fraction: float
    max_delta: float


def init(prior: Posterior) -> ServerState:
    """q = p."""
    return ServerState(prior, prior, 0)


def step(state: ServerState, updates: Sequence[Update], aggregate: Aggregator) -> tuple[ServerState, ServerInfo]:
    """Apply the updates that arrived together (algorithm 1, server's part)."""
    posterior, fraction = aggregate(state.posterior, [update.delta for update in updates])
    moved = (posterior.natural - state.posterior.natural).abs().max().item()
    return ServerState(state.prior, posterior, state.version + 1), ServerInfo(fraction, moved)


def recompute(prior: Posterior, factors: Sequence[Factor]) -> Tensor:
    """η_p + Σ η_m, what η_q must be: increments drift by rounding."""
    return prior.natural + torch.stack([factor.natural for factor in factors]).sum(0)


def drift(state: ServerState, factors: Sequence[Factor]) -> float:
    """max |η_q - (η_p + Σ η_m)|."""
    return (state.posterior.natural - recompute(state.prior, factors)).abs().max().item()
