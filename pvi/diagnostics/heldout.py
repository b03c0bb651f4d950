"""How well a result predicts rows that it has not seen, client by client."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pvi.programs.batch import Batch, as_batch, is_rows
from pvi.programs.observations import observations
from pvi.result import Result

ALL = "all clients"


def heldout_metrics(result: Result, holdout: Mapping[str, Any], num_samples: int = 1000, seed: int = 0) -> pd.DataFrame:
    """One row a client and a last one, ``all clients``, over all rows together.

    ``holdout`` holds clients' data as :func:`pvi.fit` takes them; clients without rows get NaN. A client whose own
    latents the result has is predicted with these (latents by row are new in new rows); another one's come from their
    prior. Columns: ``rows``,
    ``log_density`` (mean log predictive density log ∫ p(y_i | θ) q(θ) dθ a row, in nats; higher is better), and for
    Bernoulli outcomes ``accuracy`` (threshold ½) and ``brier`` (mean squared error of the probability; lower is
    better), for Categorical ones the same (of the likeliest class; of all classes' probabilities, summed: Brier, 1950),
    else ``rmse`` (of the predictive mean). Several observed sites of a row count jointly.
    """
    parts = {client: _rows(result, data, client, num_samples, seed) for client, data in holdout.items()}
    filled = [part for part in parts.values() if len(part)]
    parts[ALL] = pd.concat(filled) if filled else pd.DataFrame({"log_density": []})
    records = {}
    for client, part in parts.items():
        record: dict[str, float] = {
            "rows": len(part),
            "log_density": part["log_density"].mean() if len(part) else math.nan,
        }
        if "hit" in part:
            record |= {"accuracy": part["hit"].mean(), "brier": part["squared"].mean()}
        elif "squared" in part:
            record["rmse"] = math.sqrt(part["squared"].mean())
        records[client] = record
    table = pd.DataFrame.from_dict(records, orient="index").rename_axis("client")
    return table.astype({"rows": int})


def heldout_log_density(result: Result, holdout: Mapping[str, Any], num_samples: int = 200, seed: int = 0) -> float:
    """The mean log predictive density of all clients' held-out rows, nats a row; NaN without rows.

    The same draws in every call, so that the rounds of a run can be compared.
    """
    total, rows = 0.0, 0
    for client, data in holdout.items():
        batch = _batch(data, client)
        if batch is not None:
            densities = _densities(result, batch, client, num_samples, seed)
            total, rows = total + densities.sum().item(), rows + len(densities)
    return total / rows if rows else math.nan


def _rows(result: Result, data: Any, client: str, num_samples: int, seed: int) -> pd.DataFrame:
    batch = _batch(data, client)
    if batch is None:
        return pd.DataFrame({"log_density": []})
    found = observations(result.model, batch) if result.model is not None else {}
    columns = {"log_density": _densities(result, batch, client, num_samples, seed)}
    if len(found) == 1:
        ((site, observation),) = found.items()
        own = _known(result, client)
        means = result.predict_mean(*batch.args, num_samples=num_samples, seed=seed, client=own, **batch.kwargs)
        mean, observed = means[site].cpu(), observation.value.cpu()
        value = observed.to(mean.dtype)
        if mean.ndim > value.ndim:  # of classes, whatever their distribution is called
            squared = (mean - one_hot(observed.long(), mean.shape[-1])).square().sum(-1)
            columns["hit"] = _by_row((mean.argmax(-1) == observed).to(mean.dtype))
        else:
            squared = (mean - value).square()
        if observation.distribution == "Bernoulli":
            columns["hit"] = _by_row(((mean > 0.5) == (value > 0.5)).to(mean.dtype))
        columns["squared"] = _by_row(squared)
    return pd.DataFrame({name: column.double().numpy() for name, column in columns.items()})


def _by_row(values: Tensor) -> Tensor:
    """The mean over all elements of a row, ``[rows]``."""
    return values.reshape(len(values), -1).mean(-1)


def _batch(data: Any, client: str) -> Batch | None:
    """The data as :func:`pvi.fit` takes them, None for a client that has no rows."""
    values = data.values() if isinstance(data, Mapping | Batch) else data if isinstance(data, tuple | list) else [data]
    if any(is_rows(value) and value.shape[0] == 0 for value in values):
        return None
    return as_batch(data, client)


def _known(result: Result, client: str) -> str | None:
    """The client where its own latents are known."""
    return client if client in result.local else None


def _densities(result: Result, batch: Batch, client: str, num_samples: int, seed: int) -> Tensor:
    """log ∫ p(y_i | θ) q(θ) dθ of each row, all observed sites of a row jointly."""
    own = _known(result, client)
    found = result.log_likelihood(*batch.args, num_samples=num_samples, seed=seed, client=own, **batch.kwargs)
    rows = torch.stack([value.reshape(*value.shape[:2], -1).sum(-1) for value in found.values()]).sum(0)
    return (rows.logsumexp(0) - math.log(num_samples)).cpu()
