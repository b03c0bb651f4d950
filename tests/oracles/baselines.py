"""What federated variational inference is compared with, with near-exact local solves: BCM, VCL, streaming VB."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from numpy.typing import ArrayLike

from .federated import Client, Federation, Natural, Trajectory, add, times
from .glm import Covariance, Likelihood


def bcm(
    clients: Sequence[Client],
    split: Literal["rows", "clients"] | None = None,
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "diagonal",
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Trajectory:
    """Bayesian committee machine, one round: each client fits alone, the server multiplies what each has learnt.

    Without `split` (BCM same) each client's prior is p, and q = p Π (q_m / p). With it (BCM split) q = Π q_m and a
    client's prior is p to the power of its share: n_m / n ("rows", the published runs) or 1 / M ("clients").
    """
    federation = Federation(clients, likelihood, prior_mean, prior_precision, covariance, noise_scale, num_nodes)
    total = sum(len(y) for _, y in clients)
    shares = {
        None: [1.0 for _ in clients],
        "rows": [len(y) / total for _, y in clients],
        "clients": [1 / len(clients) for _ in clients],
    }[split]
    q, factors = federation.prior, []
    for index, share in enumerate(shares):
        own = times(federation.prior, share)
        factors.append(add(federation.solve(index, own, own), own, -1))
        q = add(q, factors[-1])
    return federation.trajectory([q], factors)


def streaming_vb(
    clients: Sequence[Client],
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "diagonal",
    rounds: int = 1,
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Trajectory:
    """A round is one pass: the clients' q becomes the next one's prior. Nothing is deleted at a second visit.

    From the second round on each client's rows count twice, three times, and so on: q gets too narrow.
    """
    federation = Federation(clients, likelihood, prior_mean, prior_precision, covariance, noise_scale, num_nodes)
    q, factors = federation.prior, [federation.one for _ in clients]
    posteriors: list[Natural] = []
    for _ in range(rounds):
        for index in range(len(clients)):
            new = federation.solve(index, q, q)
            factors[index] = add(factors[index], add(new, q, -1))
            q = new
        posteriors.append(q)
    return federation.trajectory(posteriors, factors)


def vcl(
    clients: Sequence[Client],
    likelihood: Likelihood = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "diagonal",
    noise_scale: float = 1.0,
    num_nodes: int = 64,
) -> Trajectory:
    """Variational continual learning: one pass, each client's q is the next one's prior. A "round" is one client."""
    federation = Federation(clients, likelihood, prior_mean, prior_precision, covariance, noise_scale, num_nodes)
    posteriors = [federation.prior]
    for index in range(len(clients)):
        posteriors.append(federation.solve(index, posteriors[-1], posteriors[-1]))
    factors = [add(new, old, -1) for old, new in pairwise(posteriors)]
    return federation.trajectory(posteriors[1:], factors)
