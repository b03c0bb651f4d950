"""FedAvg with corrections for clients that differ, SCAFFOLD (Karimireddy et al. 2020).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate |
| solver | scaffold-steps: gradient steps on -(1/b) Σ log p(y_j given θ), each corrected by c - c_i; c_i stays |
| aggregator | location average, equal or by rows, damped by the server's learning rate |
| schedule | synchronous, undamped, or a random subset |

Beside q the server holds c, the mean of the clients' control variates c_i.
"""

from typing import Literal

from pvi.algorithms.fedavg import ITERATIONS, averaging
from pvi.algorithms.protocol import Algorithm
from pvi.solvers.points import check_fraction
from pvi.solvers.scaffold_steps import ScaffoldSteps


def SCAFFOLD(
    local_iterations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    server_learning_rate: float = 1.0,
    weights: Literal["rows", "equal"] = "equal",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
) -> Algorithm:
    """SCAFFOLD: as FedAvg, where control variates cancel what differs between the clients' gradients (option II).

    Args:
        local_iterations, epochs, batch_size: of a client's steps, as in :func:`pvi.FedAvg`.
        learning_rate: η_l of the steps, which are plain gradient steps; above 0.
        server_learning_rate: η_g in θ ← θ + η_g mean_i (θ_i - θ), in (0, 1].
        weights: of the average: "equal", as published, or "rows". The control variates' mean is that of all clients,
            equally, so that with "equal" the optimum of the mean of the clients' mean losses is a fixed point.
        clients_per_round, subset_seed, spread: as in :func:`pvi.FedAvg`.

    What a client sends is twice as long as in FedAvg: its estimate, and the change of its control variate. What
    :func:`pvi.FedAvg` says of ``posterior`` and of the reported free energy holds here. Raises ``ValueError`` for
    options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.SCAFFOLD(epochs=1, learning_rate=0.1), rounds=50)  # doctest: +SKIP
    """
    check_fraction("SCAFFOLD", server_learning_rate=server_learning_rate)
    iterations = ITERATIONS if local_iterations is None and epochs is None else local_iterations
    rule = ScaffoldSteps(iterations, epochs, batch_size, learning_rate)
    return averaging(
        "scaffold", "SCAFFOLD", rule, weights, clients_per_round, subset_seed, spread,
        smoothing=server_learning_rate,
    )  # fmt: skip
