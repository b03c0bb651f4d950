"""Partitioned variational inference and its baselines with near-exact local solves: reference trajectories."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .glm import Array, Covariance, Likelihood, as_matrix, elbo, inverse
from .vi import LocalObjective, maximise

Client = tuple[Array, Array]  # design [n_m, d] and y [n_m]
Natural = tuple[Array, Array]  # h = precision · mean [d], precision [d] (diagonal) or [d, d] (full)


class Trajectory(NamedTuple):
    """A run: ELBO [rounds] in nats after each round, q, one factor a client, and what went wrong.

    `improper_cavities` and `improper_sums` count events (client visits, server steps); `local_gradient` is the
    largest gradient norm that a local solve stopped at; `posteriors` are the q after each round.
    """

    elbos: Array
    posterior: Natural
    factors: list[Natural]
    improper_cavities: int
    improper_sums: int
    local_gradient: float
    posteriors: list[Natural]


def moments_of(natural: Natural) -> tuple[Array, Array]:
    """Mean [d] and covariance ([d] or [d, d]) of natural parameters (h, precision)."""
    h, precision = natural
    if precision.ndim == 1:
        return h / precision, 1 / precision
    covariance = inverse(precision)
    return covariance @ h, covariance


def is_proper(natural: Natural) -> bool:
    """Whether the precision is positive (definite)."""
    precision = natural[1]
    return bool((precision > 0).all() if precision.ndim == 1 else np.linalg.eigvalsh(precision)[0] > 0)


def add(first: Natural, second: Natural, scale: float = 1.0) -> Natural:
    """Natural parameters of first · second^scale."""
    return first[0] + scale * second[0], first[1] + scale * second[1]


def times(natural: Natural, scale: float) -> Natural:
    """Natural parameters of a power."""
    return scale * natural[0], scale * natural[1]


@dataclass
class Federation:
    """A model, its clients, and a ledger of the local solves."""

    clients: Sequence[Client]
    likelihood: Likelihood
    prior_mean: ArrayLike
    prior_precision: ArrayLike
    covariance: Covariance
    noise_scale: float
    num_nodes: int
    improper_cavities: int = field(default=0, init=False)
    local_gradient: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.size = self.clients[0][0].shape[1]
        self.precision = as_matrix(self.prior_precision, self.size)
        self.mean = np.broadcast_to(np.asarray(self.prior_mean, dtype=np.float64), (self.size,))
        diagonal = self.covariance == "diagonal"
        if diagonal and np.any(self.precision != np.diag(np.diag(self.precision))):
            raise ValueError("diagonal factors need a diagonal prior precision")
        own = np.diag(self.precision).copy() if diagonal else self.precision
        self.prior: Natural = (self.precision @ self.mean, own)
        self.one: Natural = (0 * self.prior[0], 0 * self.prior[1])
        self.pooled = tuple(np.concatenate([client[part] for client in self.clients]) for part in (0, 1))

    def solve(self, index: int, cavity: Natural, start: Natural) -> Natural:
        """The best q for the rows of client `index` under a cavity, sought from a proper start."""
        self.improper_cavities += not is_proper(cavity)
        matrix = as_matrix(cavity[1], self.size)
        rest = (self.likelihood, self.noise_scale, self.num_nodes)
        mean, best, norm = maximise(LocalObjective(*self.clients[index], cavity[0], matrix, *rest), *moments_of(start))
        if not norm < 1e-6:
            raise RuntimeError(f"client {index}: the local solve stopped at a gradient norm of {norm:.1e}")
        self.local_gradient = max(self.local_gradient, norm)
        if best.ndim == 1:
            return mean / best, 1 / best
        precision = inverse(best)
        return precision @ mean, precision

    def elbo(self, q: Natural) -> float:
        """Global free energy in nats."""
        rest = (self.likelihood, self.mean, self.precision, self.noise_scale, self.num_nodes)
        return elbo(*self.pooled, *moments_of(q), *rest)

    def trajectory(self, posteriors: list[Natural], factors: list[Natural], improper_sums: int = 0) -> Trajectory:
        """The record of a run."""
        elbos = np.array([self.elbo(q) for q in posteriors])
        counts = (self.improper_cavities, improper_sums, self.local_gradient)
        return Trajectory(elbos, posteriors[-1], factors, *counts, posteriors)


def _pvi(federation: Federation, batches: Sequence[Sequence[int]], damping: float, rounds: int) -> Trajectory:
    """PVI that visits `batches` of client indices in each round; all clients of a batch see the same q."""
    q, factors = federation.prior, [federation.one for _ in federation.clients]
    posteriors, sums = [], 0
    for _ in range(rounds):
        for batch in batches:
            deltas = {index: add(federation.solve(index, add(q, factors[index], -1), q), q, -1) for index in batch}
            step, total = damping, federation.one
            for delta in deltas.values():
                total = add(total, delta)
            if not is_proper(add(q, total, step)):
                sums += 1
                while not is_proper(add(q, total, step)):
                    step /= 2
            q = add(q, total, step)
            for index, delta in deltas.items():
                factors[index] = add(factors[index], delta, step)
        posteriors.append(q)
    return federation.trajectory(posteriors, factors, sums)


def synchronous_pvi(
    clients: Sequence[Client],
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "diagonal",
    damping: float = 0.5,
    rounds: int = 30,
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Trajectory:
    """A round: all clients refine against the same q, the server adds damping times the sum of their changes.

    An improper sum is counted and the step halved until q is proper.
    """
    federation = Federation(clients, likelihood, prior_mean, prior_precision, covariance, noise_scale, num_nodes)
    return _pvi(federation, [range(len(clients))], damping, rounds)


def sequential_pvi(
    clients: Sequence[Client],
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "diagonal",
    damping: float = 1.0,
    rounds: int = 15,
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Trajectory:
    """A round is one pass: clients refine one after the other in the given order, each against the newest q."""
    federation = Federation(clients, likelihood, prior_mean, prior_precision, covariance, noise_scale, num_nodes)
    return _pvi(federation, [[index] for index in range(len(clients))], damping, rounds)
