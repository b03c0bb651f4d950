"""How well clients are predicted by their personal posteriors (PM), and how well by the global one (GM)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pvi.diagnostics.classification import ranking
from pvi.diagnostics.heldout import ALL, row_scores
from pvi.exact_prediction import Method
from pvi.result import Result

MODELS = ("pm", "gm")
"""Suffixes of columns: the personal model, the global model."""


def personal_metrics(
    result: Result, heldout: Mapping[str, Any], num_samples: int = 1000, seed: int = 0, method: Method = "auto"
) -> pd.DataFrame:
    """One row a client, predicted by its personal posterior and by the global one, and a last one, ``all clients``.

    ``heldout`` holds clients' data as :func:`pvi.fit` takes them; clients without rows get NaN. Columns: ``n`` (rows),
    then by model, ``_pm`` the personal and ``_gm`` the global one: ``log_density`` (mean log predictive density
    log ∫ p(y_i | θ) q(θ) dθ a row, in nats; higher is better), for Bernoulli outcomes ``accuracy`` (threshold ½) and
    ``auroc`` (NaN where all of a client's outcomes are alike), for Categorical ones ``accuracy``, else ``rmse`` of the
    predictive mean. The last row weighs the clients by their rows (``rmse``: the squares); AUROCs those that have one,
    since a personal model need not rank rows of different clients.

    Predictions are exact or drawn as in :func:`heldout_metrics`. Raises ``ValueError`` for a result without personal
    posteriors and for clients that have none.
    """
    if not result.personal:
        raise ValueError("the result has no personal posteriors; algorithm='pfedbayes' makes them")
    unknown = [client for client in heldout if client not in result.personal]
    if unknown:
        raise ValueError(f"clients {unknown} have no personal posterior; there are {list(result.personal)}")
    models = with_personal(result), replace(result, personal={})
    scores = [row_scores(model, heldout, num_samples, seed, method) for model in models]
    table = pd.DataFrame({"n": [len(part) for part in scores[0].values()]}, index=pd.Index(heldout, name="client"))
    names = {name: None for part in scores[0].values() for name in _summary(part)}
    for name in names:
        for suffix, parts in zip(MODELS, scores, strict=True):
            table[f"{name}_{suffix}"] = [_summary(part).get(name, math.nan) for part in parts.values()]
    return pd.concat([table, _overall(table)]).rename_axis("client").astype({"n": int})


def with_personal(result: Result) -> Result:
    """The same result, whose clients are predicted by their personal posteriors as by latents of their own."""
    return replace(result, local=result.personal, personal={}) if result.personal else result


def _summary(rows: pd.DataFrame) -> dict[str, float]:
    """A client's metrics; nothing of a client without rows."""
    if rows.empty:
        return {}
    found = {"log_density": rows["log_density"].mean()}
    if "hit" in rows:
        found["accuracy"] = rows["hit"].mean()
    elif "squared" in rows:
        found["rmse"] = math.sqrt(rows["squared"].mean())
    if "probability" in rows:
        found["auroc"] = ranking(rows["probability"].to_numpy(), rows["outcome"].to_numpy().astype(np.int64))[0]
    return found


def _overall(table: pd.DataFrame) -> pd.DataFrame:
    """Means over clients by their rows, of those that have a value."""
    found: dict[str, float] = {"n": table["n"].sum()}
    for name in table.columns.drop("n"):
        known = table[name].notna()
        values, rows = table.loc[known, name], table.loc[known, "n"]
        power = 2 if name.startswith("rmse") else 1
        found[name] = float(np.average(values**power, weights=rows)) ** (1 / power) if len(values) else math.nan
    return pd.DataFrame(found, index=[ALL])
