"""What a round adds up, and the record it leaves."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pvi.client import ClientInfo, Update
from pvi.free_energy import FreeEnergy
from pvi.history import Round
from pvi.posterior import Posterior
from pvi.server import ServerState


class Tally(NamedTuple):
    """What a round adds up; ``began`` is the clock's reading at its start, ``damping`` its ρ."""

    began: float
    damping: float
    infos: dict[str, ClientInfo] = {}  # noqa: RUF012 - never changed in place
    earlier: tuple[ClientInfo, ...] = ()
    fraction: float = 1.0
    moved: float = 0.0
    messages: int = 0
    size: int = 0
    time: float = 0.0


def count(
    tally: Tally, told: Sequence[tuple[ClientInfo, Update | None]], server: ServerState, silent: int = 0
) -> Tally:
    """Visits more, of one client each; ``silent`` of them were not asked for their updates."""
    infos = {info.client: info for info, _ in told}
    before = [tally.infos[name] for name in infos if name in tally.infos]
    size = sum(_bytes(update, server) for _, update in told)
    return tally._replace(
        infos=tally.infos | infos,
        earlier=(*tally.earlier, *before),
        messages=tally.messages + 2 * len(told) - silent,
        size=tally.size + size,
    )


def record(
    number: int,
    before: ServerState,
    after: ServerState,
    drift: float,
    learned: dict[str, Any],
    tally: Tally,
    energy: FreeEnergy,
) -> Round:
    """What round ``number`` tells about itself."""
    return Round(
        number=number,
        elbo=energy.value,
        elbo_standard_error=energy.standard_error,
        expected_log_likelihood=energy.likelihoods,
        kl=energy.divergence,
        communications=tally.messages,
        bytes_sent=tally.size,
        seconds=time.perf_counter() - tally.began,
        max_delta=tally.moved,
        step_fraction=tally.fraction,
        drift=drift,
        clients=tally.infos,
        earlier=tally.earlier,
        max_shift=_shift(before.posterior, after.posterior),
        damping=tally.damping,
        simulated_seconds=tally.time,
        hyperparameters=learned,
    )


def _bytes(update: Update | None, server: ServerState) -> int:
    """q and ε one way; Δ, its log scale, the free energy's scalar and its slope in ε the other way."""
    number, k = server.posterior.natural.element_size(), server.hyperparameters.numel()
    down = (server.posterior.natural.numel() + k) * number
    return down + (0 if update is None else (update.delta.natural.numel() + 2 + k + k * k) * number)


def _shift(before: Posterior, after: Posterior) -> float:
    """The largest change of a mean of x in standard deviations; infinite where something certain changed."""
    (old, _), (new, variance) = before.family.moments(before.natural), after.family.moments(after.natural)
    change = (new - old).abs()
    return torch.where(change > 0, change / variance.sqrt(), torch.zeros_like(change)).max().item()
