"""FedAvg with clients held where the others' losses are curved, FedCurv (Shoham et al. 2019).

| part | choice |
| --- | --- |
| cavity rule | no deletion: the client itself takes its own curvature away |
| solver | curved steps: gradient steps on -(1/b) Σ log p(y_j given θ) + (λ/n) ½ Σ F_m (θ - θ_m)² over the others |
| aggregator | location average; the precisions F_m are summed |
| schedule | synchronous, undamped, or a random subset |
"""

from typing import Literal

from pvi.aggregators import LocationAverage
from pvi.algorithms.fedavg import ITERATIONS, attending
from pvi.algorithms.fola import FirstPrior
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import no_deletion
from pvi.solvers import CurvaturePenalty, LocalSteps


def FedCurv(
    penalty: float = 1.0,
    local_iterations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    optimiser: str = "sgd",
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    keep_local: bool = False,
) -> Algorithm:
    """FedCurv: as FedAvg, where a client also minimises (λ/n) ½ Σ_m (θ - θ_m)ᵀ F_m (θ - θ_m) over all others m.

    Args:
        penalty: λ, 1 for the others' losses as they are in the mean over all rows, up to second order; 0 is FedAvg.
        local_iterations, epochs, batch_size, learning_rate, optimiser: of a client's steps, as in :func:`pvi.FedAvg`.
        weights, clients_per_round, subset_seed, keep_local: as in :func:`pvi.FedAvg`.

    F_m is the diagonal of the empirical Fisher information, summed over the client's rows at the end of its last visit;
    the published sum weighs all clients the same, ours by their rows. The run's ``posterior`` has the average of the
    estimates as its means, and Λ_p + Σ F_m, prior and clients' information, as its precision. Raises ``ValueError`` for
    options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.FedCurv(penalty=1.0), rounds=50)  # doctest: +SKIP
    """
    iterations = ITERATIONS if local_iterations is None and epochs is None else local_iterations
    rule = CurvaturePenalty(iterations, epochs, batch_size, learning_rate, optimiser, penalty, keep_local)
    return Algorithm(
        "fedcurv", no_deletion, LocationAverage(weights, precision="summed"),
        schedule=attending("FedCurv", clients_per_round, subset_seed), damping=1.0, rounds=100, fixed=True,
        solver=LocalSteps(rule), start=FirstPrior(None), factors=False, gaussian_prior=True,
    )  # fmt: skip
