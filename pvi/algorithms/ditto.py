"""FedAvg, and a personal estimate for every client that is held near the server's, Ditto (Li et al. 2021).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate θ_S |
| solver | ditto-steps: FedAvg's steps, and steps of v_i on -(1/b) Σ log p(y_j given v_i) + (λ/2) (v_i - θ_S)² |
| aggregator | location average, by rows or equal |
| schedule | synchronous, undamped, or a random subset |

v_i stays with its client.
"""

from typing import Literal

from pvi.algorithms.fedavg import ITERATIONS, averaging
from pvi.algorithms.protocol import Algorithm
from pvi.solvers.ditto_steps import DittoSteps


def Ditto(
    proximal: float = 0.1,
    local_iterations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    personal_learning_rate: float | None = None,
    optimiser: str = "sgd",
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
) -> Algorithm:
    """Ditto: FedAvg for all, and for each client a v_i that minimises its own loss + (λ/2) ||v_i - θ_S||².

    Args:
        proximal: λ, beside the mean negative log likelihood of a row: 0 is a client alone, a large one FedAvg. Plain
            gradient steps want ``personal_learning_rate`` times λ below 1.
        local_iterations, epochs, batch_size, learning_rate, optimiser: of a client's steps, as in :func:`pvi.FedAvg`.
            A personal step follows each of them, on the same rows.
        personal_learning_rate: of v_i's steps; ``None``: ``learning_rate``.
        weights, clients_per_round, subset_seed, spread: as in :func:`pvi.FedAvg`.

    The run's ``posterior`` is FedAvg's to the last bit; ``result.personal`` has every v_i, with the same placeholder
    of a spread. The reported value is Σ_i log p(y_i | v_i), in nats: no bound of the evidence. Raises ``ValueError``
    for options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.Ditto(proximal=1.0), rounds=50)  # doctest: +SKIP
    """
    iterations = ITERATIONS if local_iterations is None and epochs is None else local_iterations
    rate = learning_rate if personal_learning_rate is None else personal_learning_rate
    rule = DittoSteps(proximal, iterations, epochs, batch_size, learning_rate, rate, optimiser)
    return averaging("ditto", "Ditto", rule, weights, clients_per_round, subset_seed, spread, personal=True)
