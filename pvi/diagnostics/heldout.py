"""How well a result predicts rows that it has not seen, client by client."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pvi.diagnostics.predictions import filled_batches, predictive_densities, predictive_means
from pvi.exact_prediction import Method
from pvi.programs.batch import Batch
from pvi.programs.observations import observations
from pvi.result import Result

ALL = "all clients"


def heldout_metrics(
    result: Result, holdout: Mapping[str, Any], num_samples: int = 1000, seed: int = 0, method: Method = "auto"
) -> pd.DataFrame:
    """One row a client and a last one, ``all clients``, over all rows together.

    ``holdout`` holds clients' data as :func:`pvi.fit` takes them; clients without rows get NaN. A client whose own
    latents the result has is predicted with these (latents by row are new in new rows); another one's come from their
    prior. Of a run with personal posteriors the global one is measured, see :func:`personal_metrics`.

    Columns: ``rows``, ``log_density`` (mean log predictive density log ∫ p(y_i | θ) q(θ) dθ a row, in nats; higher is
    better), and for Bernoulli outcomes ``accuracy`` (threshold ½) and ``brier`` (mean squared error of the probability;
    lower is better), for Categorical ones the same (of the likeliest class; of all classes' probabilities, summed:
    Brier, 1950), else ``rmse`` (of the predictive mean). Several observed sites of a row count jointly.

    Exact, without draws, for generalised linear models with a Gaussian q, where ``num_samples`` and ``seed`` have no
    effect; from posterior draws else, and for ``method="draws"`` (see :meth:`pvi.Result.log_predictive_density`).
    """
    parts = row_scores(result, holdout, num_samples, seed, method)
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


def row_scores(
    result: Result, holdout: Mapping[str, Any], num_samples: int, seed: int, method: Method
) -> dict[str, pd.DataFrame]:
    """A frame a client with one line a held-out row; clients without rows have empty ones.

    Columns: ``log_density`` in nats; where one site is observed ``squared`` (error of the mean, or of all classes'
    probabilities together), of classes ``hit`` (whether the likeliest one was right), and of a single Bernoulli outcome
    its ``probability`` and the ``outcome``.
    """
    batches = filled_batches(holdout)
    densities = predictive_densities(result, batches, num_samples, seed, method)
    means = predictive_means(result, batches, num_samples, seed, method) if len(result.observed) == 1 else {}
    parts = {client: pd.DataFrame({"log_density": []}) for client in holdout}
    for client, batch in batches.items():
        parts[client] = _rows(result, batch, densities[client], means.get(client))
    return parts


def heldout_log_density(
    result: Result, holdout: Mapping[str, Any], num_samples: int = 200, seed: int = 0, method: Method = "auto"
) -> float:
    """The mean log predictive density of all clients' held-out rows, nats a row; NaN without rows.

    Exact or, with the same draws in every call, from draws, as in :func:`heldout_metrics`: the rounds of a run can be
    compared.
    """
    densities = predictive_densities(result, filled_batches(holdout), num_samples, seed, method)
    return torch.cat(list(densities.values())).mean().item() if densities else math.nan


def _rows(result: Result, batch: Batch, densities: Tensor, mean: Tensor | None) -> pd.DataFrame:
    columns = {"log_density": densities}
    if mean is not None and result.model is not None:
        observation = observations(result.model, batch)[result.observed[0]]
        observed = observation.value.cpu()
        value = observed.to(mean.dtype)
        if mean.ndim > value.ndim:  # of classes, whatever their distribution is called
            squared = (mean - one_hot(observed.long(), mean.shape[-1])).square().sum(-1)
            columns["hit"] = _by_row((mean.argmax(-1) == observed).to(mean.dtype))
        else:
            squared = (mean - value).square()
        if observation.distribution == "Bernoulli":
            columns["hit"] = _by_row(((mean > 0.5) == (value > 0.5)).to(mean.dtype))
            if mean.ndim == 1:
                columns |= {"probability": mean, "outcome": value}
        columns["squared"] = _by_row(squared)
    return pd.DataFrame({name: column.double().numpy() for name, column in columns.items()})


def _by_row(values: Tensor) -> Tensor:
    """The mean over all elements of a row, ``[rows]``."""
    return values.reshape(len(values), -1).mean(-1)
