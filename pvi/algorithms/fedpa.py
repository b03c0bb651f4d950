"""Federated posterior averaging, FedPA (Al-Shedivat et al. 2021).

| part | choice |
| --- | --- |
| cavity rule | no deletion: clients start at the server's estimate θ_S |
| solver | sample-steps: samples from gradient steps, and θ_S - Σ̂⁻¹ (θ_S - x̄) of their mean and covariance |
| aggregator | location average, by rows or equal, damped by the server's learning rate |
| schedule | synchronous, undamped, or a random subset |
"""

from typing import Literal

from pvi.algorithms.fedavg import averaging
from pvi.algorithms.protocol import Algorithm
from pvi.solvers.points import check_fraction
from pvi.solvers.posterior_averaging import METHOD, SampleSteps


def FedPA(
    num_samples: int = 5,
    steps_per_sample: int = 5,
    burn_in: int = 5,
    shrinkage: float = 0.1,
    batch_size: int | None = 20,
    learning_rate: float = 0.01,
    burn_in_rounds: int = 0,
    server_learning_rate: float = 1.0,
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    spread: float = 1e-4,
) -> Algorithm:
    """FedPA: as FedAvg, where clients weigh where they end by the covariance that their steps have around it.

    Args:
        num_samples: ℓ, samples a visit; 1 is FedAvg of the mean of a visit's iterates.
        steps_per_sample: gradient steps whose iterates' mean is a sample.
        burn_in: steps of a visit before the first sample.
        shrinkage: ρ in Σ̂ = ρ_ℓ I + (1 - ρ_ℓ) S_ℓ, ρ_ℓ = 1 / (1 + (ℓ - 1) ρ); 0 is I. Where samples hardly differ, the
            answer is up to 1 / ρ_ℓ times as far from θ_S as the samples' mean: ``server_learning_rate`` takes it back.
        batch_size: b, rows a step, without replacement within an epoch; ``None``: all.
        learning_rate: of the steps, which are plain gradient steps.
        burn_in_rounds: rounds, at first, in which clients answer with their last iterate, as in FedAvg.
        server_learning_rate: in θ ← θ - (...) Σ_i w_i Δ_i, in (0, 1].
        weights, clients_per_round, subset_seed, spread: as in :func:`pvi.FedAvg`.

    A visit takes ``burn_in + num_samples * steps_per_sample`` steps. In spite of the name the server has no posterior,
    only an estimate of where the clients' likelihoods together are largest: what :func:`pvi.FedAvg` says of
    ``posterior`` and of the reported free energy holds here. Raises ``ValueError`` for options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.FedPA(burn_in_rounds=10), rounds=50)  # doctest: +SKIP
    """
    check_fraction(METHOD, server_learning_rate=server_learning_rate)
    rule = SampleSteps(
        num_samples, steps_per_sample, burn_in, shrinkage, batch_size, learning_rate, burn_in_rounds
    )  # fmt: skip
    return averaging(
        "fedpa", METHOD, rule, weights, clients_per_round, subset_seed, spread, smoothing=server_learning_rate
    )  # fmt: skip
