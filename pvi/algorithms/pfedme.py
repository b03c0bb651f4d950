"""Personalised federated learning with Moreau envelopes, pFedMe (T. Dinh et al. 2020).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate w |
| solver | moreau-steps: R times K steps of θ_i on -(1/b) Σ log p(y_j given θ_i) + (λ/2) (θ_i - w_i)², one of w_i |
| aggregator | location average of the w_i, equal or by rows, smoothed by β |
| schedule | synchronous, undamped, or all clients work and a random subset of S is averaged |

θ_i stays with its client.
"""

from dataclasses import replace
from typing import Literal

from pvi.algorithms.fedavg import averaging
from pvi.algorithms.protocol import SYNCHRONOUS, Algorithm
from pvi.schedules import SubsetAfterTraining
from pvi.solvers.moreau_steps import METHOD, MoreauSteps
from pvi.solvers.points import check_count, check_fraction


def PFedMe(
    proximal: float = 15.0,
    local_iterations: int = 20,
    inner_iterations: int = 5,
    batch_size: int | None = 20,
    learning_rate: float = 0.005,
    personal_learning_rate: float = 0.01,
    smoothing: float = 1.0,
    weights: Literal["rows", "equal"] = "equal",
    subset: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
) -> Algorithm:
    """pFedMe: the server's w minimises the mean of the Moreau envelopes min_θ f_i(θ) + (λ/2) ||θ - w||².

    Args:
        proximal: λ, beside f_i, the mean negative log likelihood of a row.
        local_iterations: R, mini-batches a visit: a step of w_i each.
        inner_iterations: K, steps of θ_i a mini-batch, which make do for its minimum.
        batch_size: b, rows a mini-batch, without replacement within an epoch; ``None``: all.
        learning_rate: η of w_i ← w_i - η λ (w_i - θ_i); η λ is best below 1.
        personal_learning_rate: of θ_i's steps; below 2 / (λ + the largest curvature of f_i), or they diverge.
        smoothing: β in w ← (1 - β) w + β mean_i w_i, in (0, 1]. The paper also tries β > 1.
        weights: of the average: "equal", as published, or "rows".
        subset: S, clients whose w_i are averaged, drawn at random after all have worked; ``None``: all.
        subset_seed, spread: as in :func:`pvi.FedAvg`.

    The run's ``posterior`` is w, ``result.personal`` has every θ_i as of the client's last visit, both with the
    placeholder ``spread``. The reported value is Σ_i log p(y_i | θ_i), in nats: no bound of the evidence. Raises
    ``ValueError`` for options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.PFedMe(proximal=1.0), rounds=50)  # doctest: +SKIP
    """
    check_fraction(METHOD, smoothing=smoothing)
    rule = MoreauSteps(
        proximal, local_iterations, inner_iterations, batch_size, learning_rate, personal_learning_rate
    )  # fmt: skip
    parts = averaging("pfedme", METHOD, rule, weights, spread=spread, personal=True, smoothing=smoothing)
    if subset is not None:
        check_count(METHOD, subset=subset)
    return replace(parts, schedule=SYNCHRONOUS if subset is None else SubsetAfterTraining(subset, subset_seed))
