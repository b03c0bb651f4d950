"""FedAvg of clients that make different numbers of steps, FedNova (Wang et al. 2020).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate θ_S |
| solver | nova-steps: τ_i gradient steps on -(1/b) Σ log p(y_j given θ), and τ_eff times their mean |
| aggregator | location average by rows |
| schedule | synchronous, undamped, or a random subset |

Beside q the server holds the sums whose ratio is τ_eff = Σ p_i τ_i.
"""

from pvi.algorithms.fedavg import averaging
from pvi.algorithms.protocol import Algorithm
from pvi.solvers.nova_steps import METHOD, NovaSteps


def FedNova(
    epochs: int = 1,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
) -> Algorithm:
    """FedNova: as FedAvg, where changes are averaged by the step, and clients of many rows do not count twice.

    Args:
        epochs: passes over the client's rows, which give clients of different sizes different numbers of steps τ_i;
            an incomplete last batch is skipped.
        batch_size: b, rows a step, without replacement within an epoch; ``None``: all, which is FedAvg.
        learning_rate: of the steps, which are plain gradient steps.
        clients_per_round, subset_seed, spread: as in :func:`pvi.FedAvg`.

    θ ← θ + τ_eff Σ_i p_i (θ_i - θ) / τ_i with the shares p_i of the rows of those who answered. τ_eff, the mean of τ_i
    by rows, is over all clients that have answered before the round; the first round is FedAvg's. What
    :func:`pvi.FedAvg` says of ``posterior`` and of the reported free energy holds here. Raises ``ValueError`` for
    options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.FedNova(epochs=2, learning_rate=0.1), rounds=50)  # doctest: +SKIP
    """
    rule = NovaSteps(epochs, batch_size, learning_rate)
    return averaging("fednova", METHOD, rule, "rows", clients_per_round, subset_seed, spread)
