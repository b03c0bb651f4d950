"""Partitioned variational inference with near-exact local solves: reference trajectories."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .glm import Array, Covariance, Likelihood, as_matrix, elbo, inverse
from .vi import LocalObjective, maximise

Client = tuple[Array, Array]  # design [n_m, d] and y [n_m]
Natural = tuple[Array, Array]  # h = precision · mean [d], precision [d] (diagonal) or [d, d] (full)


class Trajectory(NamedTuple):
    """A PVI run: ELBO [rounds] in nats after each round, q, one factor a client, and what went wrong.

    `improper_cavities` and `improper_sums` count events (client visits, server steps); `local_gradient` is the
    largest gradient norm that a local solve stopped at.
    """

    elbos: Array
    posterior: Natural
    factors: list[Natural]
    improper_cavities: int
    improper_sums: int
    local_gradient: float


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


def _pvi(
    clients: Sequence[Client],
    batches: Sequence[Sequence[int]],
    likelihood: Likelihood,
    prior_mean: ArrayLike,
    prior_precision: ArrayLike,
    covariance: Covariance,
    damping: float,
    rounds: int,
    noise_scale: float,
    num_nodes: int,
) -> Trajectory:
    """PVI that visits `batches` of client indices in each round; all clients of a batch see the same q."""
    size = clients[0][0].shape[1]
    precision = as_matrix(prior_precision, size)
    shift = np.broadcast_to(np.asarray(prior_mean, dtype=np.float64), (size,))
    if covariance == "diagonal" and np.any(precision != np.diag(np.diag(precision))):
        raise ValueError("diagonal factors need a diagonal prior precision")
    q: Natural = (precision @ shift, np.diag(precision).copy() if covariance == "diagonal" else precision)
    factors: list[Natural] = [(0 * q[0], 0 * q[1]) for _ in clients]
    design, y = np.concatenate([c[0] for c in clients]), np.concatenate([c[1] for c in clients])
    elbos, cavities, sums, worst = [], 0, 0, 0.0
    for _ in range(rounds):
        for batch in batches:
            deltas: dict[int, Natural] = {}
            for index in batch:
                cavity = add(q, factors[index], -1)
                cavities += not is_proper(cavity)
                objective = LocalObjective(
                    *clients[index], cavity[0], as_matrix(cavity[1], size), likelihood, noise_scale, num_nodes
                )
                mean, best, norm = maximise(objective, *moments_of(q))
                if not norm < 1e-6:
                    raise RuntimeError(f"client {index}: the local solve stopped at a gradient norm of {norm:.1e}")
                worst = max(worst, norm)
                local_precision = 1 / best if best.ndim == 1 else inverse(best)
                local = (
                    local_precision * mean if best.ndim == 1 else local_precision @ mean,
                    local_precision,
                )
                deltas[index] = add(local, q, -1)
            step = damping
            total: Natural = (0 * q[0], 0 * q[1])
            for delta in deltas.values():
                total = add(total, delta)
            if not is_proper(add(q, total, step)):
                sums += 1
                while not is_proper(add(q, total, step)):
                    step /= 2
            q = add(q, total, step)
            for index, delta in deltas.items():
                factors[index] = add(factors[index], delta, step)
        elbos.append(
            elbo(
                design,
                y,
                *moments_of(q),
                likelihood,
                shift,
                precision,
                noise_scale=noise_scale,
                num_nodes=num_nodes,
            )
        )
    return Trajectory(np.array(elbos), q, factors, cavities, sums, worst)


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
    batches = [range(len(clients))]
    options = (likelihood, prior_mean, prior_precision, covariance, damping, rounds, noise_scale, num_nodes)
    return _pvi(clients, batches, *options)


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
    batches = [[index] for index in range(len(clients))]
    options = (likelihood, prior_mean, prior_precision, covariance, damping, rounds, noise_scale, num_nodes)
    return _pvi(clients, batches, *options)
