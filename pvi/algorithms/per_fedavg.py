"""Federated averaging of a model that is good after one step of a client's own, Per-FedAvg (Fallah et al. 2020).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate w |
| solver | meta-steps: τ times θ' = w - α ∇f(w), w ← w - β ∇f(θ'), f = -(1/b) Σ log p(y_j given θ) |
| aggregator | location average, equal or by rows |
| schedule | synchronous, undamped, or a random subset |

w after a step of α on its rows stays with each client.
"""

from typing import Literal

from pvi.algorithms.fedavg import averaging
from pvi.algorithms.protocol import Algorithm
from pvi.solvers.meta_steps import METHOD, MetaSteps


def PerFedAvg(
    local_iterations: int = 10,
    batch_size: int | None = 20,
    inner_learning_rate: float = 0.01,
    learning_rate: float = 0.01,
    weights: Literal["rows", "equal"] = "equal",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
) -> Algorithm:
    """Per-FedAvg, first order: a meta model, and each client's after one gradient step from it.

    Args:
        local_iterations: τ, steps of the meta model a visit, each on two mini-batches.
        batch_size: b, rows a mini-batch, without replacement within an epoch; ``None``: all.
        inner_learning_rate: α of the step that adapts; 0 is FedAvg, which then sees every second mini-batch.
        learning_rate: β of the step that learns.
        weights: of the average: "equal", as published, or "rows".
        clients_per_round, subset_seed, spread: as in :func:`pvi.FedAvg`.

    The run's ``posterior`` is the meta model; ``result.personal`` has each client's: the meta model that it was sent
    last, after a step of α on all the client's rows. Both have the placeholder ``spread``. The reported value is
    Σ_i log p(y_i | θ_i) of the latter, in nats: no bound of the evidence. Raises ``ValueError`` for options out of
    range.

    >>> pvi.fit(model, clients, algorithm=pvi.PerFedAvg(inner_learning_rate=0.1), rounds=50)  # doctest: +SKIP
    """
    rule = MetaSteps(local_iterations, batch_size, inner_learning_rate, learning_rate)
    return averaging(
        "per-fedavg", METHOD, rule, weights, clients_per_round, subset_seed, spread, personal=True
    )  # fmt: skip
