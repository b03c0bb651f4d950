"""The server's problem of pFedBayes in closed form: Zhang et al. (2022), section 4.

Written for itself, on arrays: the library's aggregators are tested against it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def optimal_server(means: ArrayLike, variances: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance ``[T]`` of the w that minimises (1/N) Σ_i KL(q_i, w), all of them mean-field Gaussians.

    ``means`` and ``variances`` ``[N, T]`` are the clients' q_i. μ_w = (1/N) Σ μ_i and
    σ²_w = (1/N) Σ [σ_i² + (μ_i - μ_w)²]: w has the moments of the mixture of the q_i.

    >>> mean, variance = optimal_server([[0.0], [2.0]], [[1.0], [3.0]])
    >>> mean.tolist(), variance.tolist()
    ([1.0], [3.0])

    Raises ``ValueError`` for shapes that differ or are not [N, T], means that are not finite, and variances that are
    not positive and finite.
    """
    means, variances = _clients(means, variances)
    mean = means.mean(0)
    return mean, (variances + (means - mean) ** 2).mean(0)


def server_objective(means: ArrayLike, variances: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> float:
    """(1/N) Σ_i KL(q_i, w) in nats: clients' ``means`` and ``variances`` ``[N, T]``, the server's ``[T]``.

    KL(q_i, w) = ½ Σ_m [log(σ²_w / σ²_i) + (σ²_i + (μ_i - μ_w)²) / σ²_w - 1].

    >>> server_objective([[1.0], [1.0]], [[2.0], [2.0]], [0.0], [2.0])
    0.25

    Raises ``ValueError`` as :func:`optimal_server`, for the server's too.
    """
    means, variances = _clients(means, variances)
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    for label, part in (("mean", mean), ("variance", variance)):
        if part.shape != means.shape[1:]:
            raise ValueError(
                f"the server's {label} has shape {list(part.shape)}, but clients have {means.shape[1]} weights"
            )
    _check("the server", mean, variance)
    divergences = np.log(variance / variances) + (variances + (means - mean) ** 2) / variance - 1
    return float(0.5 * divergences.sum(1).mean())


def _clients(means: ArrayLike, variances: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    means, variances = np.asarray(means, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    if means.ndim != 2 or means.shape != variances.shape or not len(means):
        raise ValueError(
            f"means and variances must have one shape [clients, weights], got {list(means.shape)} and "
            f"{list(variances.shape)}"
        )
    for client, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        _check(f"client {client}", mean, variance)
    return means, variances


def _check(owner: str, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> None:
    for label, values, good, rule in (
        ("mean", mean, np.isfinite(mean), "finite"),
        ("variance", variance, np.isfinite(variance) & (variance > 0), "positive and finite"),
    ):
        if not good.all():
            weight = int(np.argmin(good))
            raise ValueError(f"{owner}'s {label} of weight {weight} must be {rule}, got {values[weight]}")
