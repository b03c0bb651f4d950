"""How good predicted classes are: likelihood, accuracy, calibration, ranking."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from pvi.diagnostics.predictions import filled_batches, predictive_densities, predictive_means
from pvi.exact_prediction import Method
from pvi.programs.batch import Batch
from pvi.programs.observations import observations
from pvi.result import Result

BINS = 15
LEVEL = 0.95
SMALL = 1e-30
"""Probabilities that single precision may have rounded to 0."""
SLACK = 1e-4
"""How far a row's class probabilities may be from summing to 1: single precision is 1e-7 a class."""

Floats = NDArray[np.float64]


def classification_metrics(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> dict[str, float]:
    """Metrics of predicted probabilities ``[n]`` (of class 1) or ``[n, K]``, and true labels ``[n]`` in 0, ..., K - 1.

    - ``log_likelihood``: mean log probability of the label, nats a row; -inf where a label had probability 0;
    - ``accuracy`` of the likeliest class (a binary tie at ½ counts as class 0) and ``error`` = 1 - accuracy;
    - ``brier``: mean squared error of the probability; with ``[n, K]`` summed over the classes (Brier, 1950);
    - ``ece``: expected calibration error over ``bins`` of equal width, see :func:`calibration_table`;
    - binary only: ``auroc`` and ``auprc`` (average precision of class 1), NaN where all labels are of one class.

    Without rows all are NaN. Raises ``ValueError`` for labels or probabilities out of range, naming the first row.
    """
    p, y = checked(probabilities, labels)
    binary = p.ndim == 1
    names = ("log_likelihood", "accuracy", "error", "brier", "ece", *(("auroc", "auprc") if binary else ()))
    if not len(y):
        return dict.fromkeys(names, math.nan)
    each = np.stack([1 - p, p], 1) if binary else p
    with np.errstate(divide="ignore"):
        likelihood = np.log(each[np.arange(len(y)), y]).mean()
    hit = (each.argmax(1) == y).mean()
    squared = (each - np.eye(each.shape[1])[y]) ** 2
    brier = squared[:, 1].mean() if binary else squared.sum(1).mean()
    found = [likelihood, hit, 1 - hit, brier, calibration_error(p, y, bins)]
    if binary:
        found += ranking(p, y)
    return {name: float(value) for name, value in zip(names, found, strict=True)}


def calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float:
    """Σ_b n_b / n |frequency_b - confidence_b| over the bins of :func:`calibration_table`; NaN without rows."""
    table = calibration_table(probabilities, labels, bins)
    total = table["rows"].sum()
    gaps = (table["frequency"] - table["confidence"]).abs().fillna(0.0)  # of empty bins
    return float((gaps * table["rows"]).sum() / total) if total else math.nan


def calibration_table(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> pd.DataFrame:
    """Confidence against frequency in bins (lower, upper] of equal width over [0, 1]; 0 belongs to the first bin.

    With probabilities ``[n, K]`` confidence is that of the likeliest class, and frequency how often it is right (Guo et
    al., 2017). With ``[n]`` confidence is the probability of class 1, and frequency how often it is seen, so that both
    ends of the scale are looked at; ``np.stack([1 - p, p], 1)`` gives the other convention.

    Columns: ``lower``, ``upper``, ``rows``, ``confidence`` (mean of the bin's rows), ``frequency``, and its 95 %
    Clopper-Pearson interval ``frequency_lower``, ``frequency_upper``; NaN in empty bins.
    """
    from scipy import stats

    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    p, y = checked(probabilities, labels)
    confidence, seen = (p, y == 1) if p.ndim == 1 else (p.max(1, initial=0.0), p.argmax(1) == y)
    edges = np.linspace(0, 1, bins + 1)
    place = (np.searchsorted(edges, confidence, side="left") - 1).clip(0, bins - 1)
    rows, hits = np.bincount(place, minlength=bins), np.bincount(place, seen, minlength=bins)
    sums = np.bincount(place, confidence, minlength=bins)
    tail = (1 - LEVEL) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "lower": edges[:-1],
            "upper": edges[1:],
            "rows": rows,
            "confidence": sums / rows,
            "frequency": hits / rows,
            "frequency_lower": np.where(hits > 0, stats.beta.ppf(tail, hits, rows - hits + 1), 0.0),
            "frequency_upper": np.where(hits < rows, stats.beta.ppf(1 - tail, hits + 1, rows - hits), 1.0),
        }
    table = pd.DataFrame(columns)
    table.loc[table["rows"] == 0, ["frequency_lower", "frequency_upper"]] = math.nan
    return table


def heldout_classification(
    result: Result, data: Any, num_samples: int = 100, seed: int = 0, bins: int = BINS, method: Method = "auto"
) -> dict[str, float]:
    """:func:`classification_metrics` of a result on rows that it has not seen, all clients' rows together.

    ``data`` is what :func:`pvi.fit` takes of one client, or a mapping of clients to that; clients whose own latents the
    result has are predicted with them. Predictions are exact for generalised linear models with a Gaussian q, else (or
    with ``method="draws"``) from ``num_samples`` posterior draws; ``log_likelihood`` keeps its digits however sure they
    are. Raises ``ValueError`` where the model's outcome is no class.
    """
    batches = filled_batches(_clients(data))
    p, y = _probabilities(result, batches, num_samples, seed, method)
    found = classification_metrics(p, y, bins)
    # Binary: 1 - p has lost digits where the model is sure. Of many classes the label has a probability of its own.
    if len(y) and (p.ndim == 1 or p[np.arange(len(y)), y].min() < SMALL):
        densities = predictive_densities(result, batches, num_samples, seed, method)
        found["log_likelihood"] = torch.cat(list(densities.values())).double().mean().item()
    return found


def heldout_probabilities(
    result: Result, data: Any, num_samples: int = 100, seed: int = 0, method: Method = "auto"
) -> tuple[Floats, NDArray[np.int64]]:
    """Predicted probabilities ``[n]`` (Bernoulli) or ``[n, K]``, labels ``[n]``; as :func:`heldout_classification`."""
    return _probabilities(result, filled_batches(_clients(data)), num_samples, seed, method)


def checked(probabilities: ArrayLike, labels: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """Both as arrays, whose shapes and ranges fit; raises ``ValueError`` where they do not."""
    p, raw = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if p.ndim not in (1, 2) or raw.shape != p.shape[:1] or p.shape[1:] in ((0,), (1,)):
        raise ValueError(
            f"probabilities must be [n] or [n, K] with K >= 2 and labels [n], got {list(p.shape)} and {list(raw.shape)}"
        )
    y = raw.astype(np.int64)
    most = 1 if p.ndim == 1 else p.shape[1] - 1
    wrong = (y != raw) | (y < 0) | (y > most)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"row {row} has the label {raw[row]}; labels must be 0, ..., {most}")
    each = p if p.ndim == 2 else p[:, None]
    outside = ~((each >= 0) & (each <= 1 + SLACK)).all(1)
    if p.ndim == 2:
        outside |= ~(np.abs(each.sum(1) - 1) <= SLACK)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"row {row} has the probabilities {p[row].tolist()}: out of [0, 1], or their sum is not 1")
    return p.clip(max=1.0), y


def ranking(p: Floats, y: NDArray[np.int64]) -> list[float]:
    """AUROC and average precision of class 1; NaN where all labels are of one class."""
    if y.min() == y.max():
        return [math.nan, math.nan]
    from sklearn.metrics import average_precision_score, roc_auc_score

    return [roc_auc_score(y, p), average_precision_score(y, p)]


def _clients(data: Any) -> Mapping[str, Any]:
    """The data by client: a mapping of tensors is one client's arguments."""
    is_one = isinstance(data, Batch) or not isinstance(data, Mapping)
    if is_one or not any(isinstance(value, tuple | list | Mapping) for value in data.values()):
        return {"": data}  # nobody's name: latents of its own come from their prior
    return data


def _probabilities(
    result: Result, batches: Mapping[str, Batch], num_samples: int, seed: int, method: Method
) -> tuple[Floats, NDArray[np.int64]]:
    if len(result.observed) != 1:
        raise ValueError(f"the model observes several sites ({', '.join(result.observed)}); classes are of one")
    (site,) = result.observed
    if not batches:
        return np.zeros(0), np.zeros(0, np.int64)
    means = predictive_means(result, batches, num_samples, seed, method)
    labels = []
    for client, batch in batches.items():
        assert result.model is not None  # or there would be no predictions
        observation = observations(result.model, batch)[site]
        shape = list(observation.value.shape)
        is_binary = observation.distribution == "Bernoulli" and means[client].ndim == 1
        if len(shape) != 1 or not (is_binary or means[client].ndim == 2):
            raise ValueError(
                f"client {client!r}: site {site!r} ({observation.distribution}) has outcomes of shape {shape}; classes "
                "are one Bernoulli or Categorical outcome a row. See heldout_metrics for others"
            )
        labels.append(observation.value.cpu())
    return torch.cat(list(means.values())).double().numpy(), torch.cat(labels).long().numpy()
