"""What a run tells about itself: one record a round."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from pvi.client import ClientInfo


class Round(NamedTuple):
    """One round (sequential: one pass over the clients); ``number`` counts from 1.

    ``elbo`` is the global free energy F(q) = Σ_m E_q[log p(y_m | θ)] - KL(q, p) in nats after the round, with its
    Monte Carlo ``elbo_standard_error`` (0 where the expectations are exact); ``expected_log_likelihood`` the clients'
    terms and ``kl`` the last one. An algorithm with another objective reports that one instead, as ``settings`` of the
    result say: pFedBayes Σ_m (E_{q_m}[log p(y_m | θ)] - ζ KL(q_m, q)) under the clients' personal posteriors q_m, where
    ``kl`` is ζ Σ_m KL(q_m, q); that is no bound on the evidence of one θ for all rows.
    ``communications`` counts the messages of the round's updates, ``bytes_sent`` their
    size; the free energy's scalars ride on the next visit and are not counted. ``max_delta`` is max |Δη| of q over
    the round's steps, ``step_fraction`` the smallest fraction that the server could apply, ``drift``
    max |η_q - (η_p + Σ η_m)|. ``clients`` holds the info of every client's last visit, ``earlier`` that of visits
    before it in the same round (asynchronous rounds may hear a client twice). ``max_shift`` is the largest change of a
    posterior mean over the round in posterior standard deviations (unconstrained): the ELBO can look settled long
    before it is.
    ``damping`` is the ρ used, ``simulated_seconds`` the schedule's time at the end of the round, ``hyperparameters``
    the learned ones by name, ``mixing`` the accelerated round's weights (empty: the plain step was taken), ``attempts``
    how often the round was played until the free energy did not fall (``damping="auto"``).
    """

    number: int
    elbo: float
    elbo_standard_error: float
    expected_log_likelihood: dict[str, float]
    kl: float
    communications: int
    bytes_sent: int
    seconds: float
    max_delta: float
    step_fraction: float
    drift: float
    clients: dict[str, ClientInfo]
    max_shift: float = 0.0
    damping: float = 1.0
    simulated_seconds: float = 0.0
    hyperparameters: dict[str, Any] = {}  # noqa: RUF012 - a record, never changed
    mixing: tuple[float, ...] = ()
    attempts: int = 1
    earlier: tuple[ClientInfo, ...] = ()

    @property
    def visits(self) -> tuple[ClientInfo, ...]:
        """Every visit's info."""
        return (*self.earlier, *self.clients.values())

    @property
    def max_staleness(self) -> int:
        """The most steps that the server took while a client was at work."""
        return max((info.staleness for info in self.visits), default=0)

    @property
    def unconverged(self) -> dict[str, str]:
        """Clients whose local solve says that it ended before it converged, and what it says."""
        solves = [(info.client, info.solver) for info in self.visits if info.solver is not None]
        return {name: solver.message for name, solver in solves if not solver.converged}

    @property
    def rejected(self) -> dict[str, str]:
        """Clients whose update was not used, and why."""
        return {info.client: info.rejected for info in self.visits if info.rejected}


def falling(history: Sequence[Round], rounds: int = 3) -> str:
    """What to say where the ELBO falls for good, else empty.

    It does where it fell in each of the last ``rounds`` rounds, or where, oscillating, both the best and the average of
    these are below those of as many rounds before. Falls of less than 0.1 nats or three standard errors are noise.
    """
    recent, before = history[-rounds:], history[-2 * rounds : -rounds]
    if not before:
        return ""
    noise = 0.1 + 3 * max(record.elbo_standard_error for record in (*recent, *before))
    steady = all(after.elbo < one.elbo - noise for one, after in pairwise((before[-1], *recent)))
    means = [fmean(record.elbo for record in part) for part in (before, recent)]
    bests = [max(record.elbo for record in part) for part in (before, recent)]
    swinging = len(before) == rounds and means[1] < means[0] - noise and bests[1] < bests[0] - noise
    if not (steady or swinging):
        return ""
    return (
        f"the ELBO falls (from {bests[0]:.3f} to {recent[-1].elbo:.3f} in the last rounds, damping "
        f"{recent[-1].damping:.3g}): the run diverges. Use a smaller damping, damping='auto', or a sequential schedule"
    )


def sunken(history: Sequence[Round], rounds: int = 3, far: float = 0.1) -> str:
    """What to say where the last ``rounds`` free energies all lie far below the best one before, else empty.

    For algorithms whose rounds need not raise it. Far is a share of the best one's size, and more than noise, 0.1 nats
    or three standard errors.
    """
    before, recent = history[:-rounds], history[-rounds:]
    if not before:
        return ""
    best = max(before, key=lambda record: record.elbo)
    noise = 0.1 + 3 * max(record.elbo_standard_error for record in (best, *recent))
    if not all(record.elbo < best.elbo - max(noise, far * abs(best.elbo)) for record in recent):
        return ""
    return f"has fallen far, from {best.elbo:.3f} in round {best.number} to {recent[-1].elbo:.3f}, and stays there"


def remote(last: Round, rows: int, far: float = 1e6) -> bool:
    """Whether a free energy is so low, by ``far`` nats a row, that q has nothing to do with the rows.

    Draws of a wide q over many weights cost a network thousands without anything being wrong.
    """
    return last.elbo < -far * rows


def unsettled(history: Sequence[Round], tolerance: float = 0.01) -> list[str]:
    """The hyperparameters that the last round still changed by more than ``tolerance`` of their size."""
    if not history or not history[-1].hyperparameters:
        return []
    before = history[-2].hyperparameters if len(history) > 1 else {}
    moving = []
    for name, value in history[-1].hyperparameters.items():
        new, old = np.asarray(value, dtype=float), np.asarray(before.get(name, np.inf), dtype=float)
        if np.any(np.abs(new - old) > tolerance * np.maximum(np.abs(new), tolerance)):
            moving.append(name)
    return moving
