"""FedAvg with clients held near the server's estimate, FedProx (Li et al. 2020).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate θ_S |
| solver | point-steps: gradient steps on -(1/b) Σ log p(y_j given θ) + (μ/2) (θ - θ_S)² |
| aggregator | location average, by rows or equal |
| schedule | synchronous, undamped, or a random subset |
"""

from typing import Literal

from pvi.algorithms.fedavg import ITERATIONS, averaging
from pvi.algorithms.protocol import Algorithm
from pvi.solvers import PointSteps


def FedProx(
    proximal: float = 0.1,
    local_iterations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    optimiser: str = "sgd",
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
    keep_local: bool = False,
) -> Algorithm:
    """FedProx: as FedAvg, where a client also minimises (μ/2) (θ - θ_S)² around the estimate it was sent.

    Args:
        proximal: μ, beside the mean negative log likelihood of a row; 0 is FedAvg.
        local_iterations, epochs, batch_size, learning_rate, optimiser: of a client's steps, as in :func:`pvi.FedAvg`.
        weights, clients_per_round, subset_seed, spread, keep_local: as in :func:`pvi.FedAvg`.

    All clients make all their steps: the partial work of slow ones that the paper also allows is not simulated. What
    :func:`pvi.FedAvg` says of ``posterior`` and of the reported free energy holds here. Raises ``ValueError`` for
    options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.FedProx(proximal=1.0), rounds=50)  # doctest: +SKIP
    """
    iterations = ITERATIONS if local_iterations is None and epochs is None else local_iterations
    rule = PointSteps(iterations, epochs, batch_size, learning_rate, optimiser, proximal, keep_local)
    return averaging("fedprox", "FedProx", rule, weights, clients_per_round, subset_seed, spread)
