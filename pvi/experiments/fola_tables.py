"""FOLA's curves as tables of their own: GA between two clients' posteriors, and accuracies beside densities."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from pvi.experiments.fola_accuracy import RIDGE

PAIRS = (("ae", "ga"), ("lf", "la"))
"""A density and the accuracy that should fall with it."""
ALPHA = ", α = "
"""Between a method and its concentration."""


def ridge_table(curves: pd.DataFrame) -> pd.DataFrame:
    """One row a seed, method, round and π_1: ``ga`` in per cent there."""
    keys = ["seed", "method", "round"]
    columns = [name for name in curves.columns if str(name).startswith(RIDGE)]
    if not columns:
        return pd.DataFrame(columns=[*keys, "pi_1", "ga"])
    found = curves[[*keys, *columns]].melt(keys, var_name="pi_1", value_name="ga").dropna(subset=["ga"])
    found["pi_1"] = found["pi_1"].str.removeprefix(RIDGE).astype(float)
    return found.reset_index(drop=True)


def correlation_table(curves: pd.DataFrame) -> pd.DataFrame:
    """One row a seed, method and round: α, accuracies in per cent, densities and the least they can be in nats."""
    keys, columns = ["seed", "method", "round"], [*[name for pair in PAIRS for name in pair], "least"]
    if not set(columns) <= set(curves):
        return pd.DataFrame(columns=["seed", "method", "alpha", "round", *columns])
    found = curves[[*keys, *columns]].dropna().reset_index(drop=True)
    names = found["method"].str.rsplit(ALPHA, n=1)
    found["method"] = names.str[0]
    found.insert(2, "alpha", names.str[1].astype(float))
    return found


class Correlation(NamedTuple):
    """Rank (Spearman) and linear (Pearson) correlation; NaN where one side is constant."""

    spearman: float
    pearson: float


def correlation(pairs: pd.DataFrame) -> Correlation:
    """Of two columns."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = [np.corrcoef(one.to_numpy(dtype=float), rowvar=False)[0, 1] for one in (pairs.rank(), pairs)]
    return Correlation(*map(float, found))


def coefficients(found: pd.DataFrame) -> pd.DataFrame:
    """The correlations of both pairs at each α, over all rounds of all methods and seeds."""
    rows = [
        {"alpha": alpha, "distance": distance, "accuracy": accuracy, "rounds": len(chosen)}
        | correlation(chosen[[distance, accuracy]])._asdict()
        for alpha, chosen in found.groupby("alpha")
        for distance, accuracy in PAIRS
    ]
    return pd.DataFrame(rows)
