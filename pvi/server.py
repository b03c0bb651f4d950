"""The server: it holds the prior, its own factor, the hyperparameters and q, and nothing of any client's."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.aggregators import Aggregator
from pvi.cavities import Setting
from pvi.client import Update
from pvi.factors import Factor, as_factor, multiply, unit
from pvi.families import largest_step
from pvi.posterior import Posterior


class ServerState(NamedTuple):
    """Prior, approximate posterior, the number of steps taken, and the hyperparameters u ``[k]`` (unconstrained).

    ``prior`` lies in the family. Where the model's prior does not, ``correction`` is the server's own factor t_0, and
    p(θ) ≈ prior · t_0. ``beside`` is the sum of what clients sent beside their factors, see
    :attr:`~pvi.cavities.Setting.beside`.
    """

    prior: Posterior
    posterior: Posterior
    version: int
    hyperparameters: Tensor
    correction: Factor
    beside: Tensor | None = None


class ServerInfo(NamedTuple):
    """The fraction of the summed change that kept q proper, and max |Δη| of what was applied."""

    step_fraction: float
    max_delta: float


def init(prior: Posterior, hyperparameters: Tensor) -> ServerState:
    """q = p."""
    return ServerState(prior, prior, 0, hyperparameters, unit(prior.family, prior.natural))


def step(
    state: ServerState, updates: Sequence[Update], aggregate: Aggregator, shares: Mapping[str, float]
) -> tuple[ServerState, ServerInfo]:
    """Apply the updates that arrived together (algorithm 1, server's part); ``shares`` of all rows by client."""
    weights = [shares[update.client] for update in updates]
    posterior, fraction = aggregate(state.posterior, [update.delta for update in updates], weights)
    moved = (posterior.natural - state.posterior.natural).abs().max().item()
    # Where every solve was rejected, q is the one that there was: who starts from nothing must still know.
    version = state.version + (1 if updates else 0)
    beside = state.beside
    for update in updates:
        if update.beside is not None:
            beside = update.beside if beside is None else beside + update.beside
    return state._replace(posterior=posterior, version=version, beside=beside), ServerInfo(fraction, moved)


def correct(state: ServerState, delta: Factor) -> tuple[ServerState, float]:
    """t_0 and q after a refinement of t_0, and the fraction of it that keeps q proper."""
    fraction = float(largest_step(state.posterior.family, state.posterior.natural, delta.natural))
    part = Factor(delta.family, fraction * delta.natural, fraction * delta.log_scale)
    posterior = Posterior(
        state.posterior.family, state.posterior.natural + part.natural, state.posterior.coordinates
    )  # fmt: skip
    return state._replace(posterior=posterior, correction=multiply(state.correction, part)), fraction


def exchange_prior(state: ServerState, prior: Posterior) -> ServerState | None:
    """q with another prior in the place of the old one, the factors as they are; ``None`` where q is improper then."""
    natural = state.posterior.natural + prior.natural - state.prior.natural
    if not bool(prior.family.is_proper(natural)):
        return None
    return state._replace(prior=prior, posterior=Posterior(prior.family, natural, prior.coordinates))


def setting(state: ServerState, num_clients: int) -> Setting:
    """What the server tells the clients of the whole."""
    return Setting(
        multiply(as_factor(state.prior), state.correction), num_clients, version=state.version, beside=state.beside
    )


def recompute(state: ServerState, factors: Sequence[Factor]) -> Tensor:
    """η_p + η_0 + Σ η_m, what η_q must be: increments drift by rounding."""
    total = torch.zeros_like(state.prior.natural)
    for factor in factors:
        total += factor.natural
    return state.prior.natural + state.correction.natural + total


def drift(state: ServerState, factors: Sequence[Factor]) -> float:
    """max |η_q - (η_p + η_0 + Σ η_m)|."""
    return (state.posterior.natural - recompute(state, factors)).abs().max().item()
