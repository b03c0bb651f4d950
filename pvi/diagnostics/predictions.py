"""Predictions for the rows of several clients: exact ones of all rows at once, others client by client."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pvi.exact_prediction import Method, NotExact
from pvi.programs.batch import Batch, as_batch, is_rows
from pvi.programs.batches import POOLED, pool
from pvi.programs.predictive import pointwise
from pvi.programs.row_likelihood import close
from pvi.result import Result

Predict = Callable[[Batch, str | None], Tensor]
"""Of a batch and the client whose own latents are used, ``[rows, ...]``."""


def filled_batches(data: Mapping[str, Any]) -> dict[str, Batch]:
    """Clients' data, each as :func:`pvi.fit` takes them, as batches; clients without rows are left out."""
    return {client: as_batch(one, client) for client, one in data.items() if not _is_empty(one)}


def _is_empty(data: Any) -> bool:
    values = data.values() if isinstance(data, Mapping | Batch) else data if isinstance(data, tuple | list) else [data]
    return any(is_rows(value) and value.shape[0] == 0 for value in values)


def predictive_densities(
    result: Result, batches: Mapping[str, Batch], num_samples: int, seed: int, method: Method
) -> dict[str, Tensor]:
    """log ∫ p(y_i | θ) q(θ) dθ in nats by client ``[rows]``, all observed sites of a row jointly; on the CPU."""

    def exact(batch: Batch, client: str | None) -> Tensor:
        found = result.log_predictive_density(*batch.args, client=client, method="quadrature", **batch.kwargs)
        return found[result.observed[0]]

    def drawn(batch: Batch, client: str | None) -> Tensor:
        found = result.log_likelihood(*batch.args, num_samples=num_samples, seed=seed, client=client, **batch.kwargs)
        rows = torch.stack([value.reshape(*value.shape[:2], -1).sum(-1) for value in found.values()]).sum(0)
        return rows.logsumexp(0) - math.log(num_samples)

    return _by_client(result, batches, exact, drawn, method)


def predictive_means(
    result: Result, batches: Mapping[str, Batch], num_samples: int, seed: int, method: Method
) -> dict[str, Tensor]:
    """E[y_i] by client ``[rows, ...]``, of the one observed site; on the CPU. See :meth:`pvi.Result.predict_mean`."""
    (site,) = result.observed

    def exact(batch: Batch, client: str | None) -> Tensor:
        return result.predict_mean(*batch.args, client=client, method="quadrature", **batch.kwargs)[site]

    def drawn(batch: Batch, client: str | None) -> Tensor:
        means = result.mean_draws(*batch.args, num_samples=num_samples, seed=seed, client=client, **batch.kwargs)
        return means[site].mean(0)

    return _by_client(result, batches, exact, drawn, method)


def _by_client(
    result: Result, batches: Mapping[str, Batch], exact: Predict, drawn: Predict, method: Method
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    # Finding out about a model takes as long as its integrals: it is done once for all that share a posterior.
    alike = {client: batch for client, batch in batches.items() if client not in result.local}
    together = _joined(result, alike) if method != "draws" and len(alike) > 1 else None
    if together is not None:
        try:
            parts = exact(together, None).split([batch.num_rows for batch in alike.values()])
            found = dict(zip(alike, parts, strict=True))
        except NotExact:
            pass  # for the rows together; each client is asked below
    for client, batch in batches.items():
        if client not in found:
            found[client] = _one(batch, client if client in result.local else None, exact, drawn, method)
    return {client: found[client].cpu() for client in batches}


def _one(batch: Batch, client: str | None, exact: Predict, drawn: Predict, method: Method) -> Tensor:
    if method == "draws":
        return drawn(batch, client)
    try:
        return exact(batch, client)
    except NotExact:
        if method == "quadrature":
            raise
        return drawn(batch, client)


def _joined(result: Result, batches: Mapping[str, Batch]) -> Batch | None:
    """All clients' rows as one batch; None where a row's likelihood is another one there, or arguments differ."""
    if result.model is None:
        return None
    natural = result.posterior.natural
    moved = {client: batch.to(natural.device, natural.dtype) for client, batch in batches.items()}
    draw = result.posterior.sample(1, torch.Generator(device=natural.device).manual_seed(0))
    try:
        together = pool(moved, {})[POOLED]
        apart = [pointwise(result.model, result.observed, draw, batch) for batch in moved.values()]
        joint = pointwise(result.model, result.observed, draw, together)
        same = all(
            close(torch.cat([part[site] for part in apart], 1), values, 1e4 * torch.finfo(natural.dtype).eps)
            for site, values in joint.items()
        )
    except (RuntimeError, ValueError):
        return None
    return together if same else None
