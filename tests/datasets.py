"""Data sets for tests: dicts of client name -> (design [n, d], y [n] in {0, 1}), float64.

The first column is the intercept. Files come from the folder that the environment variable PVI_DATA names;
without it the test is skipped. Means, standard deviations and most frequent levels are those of all clients
together (a federation gets them from per-client sums).
"""

import os
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]
Clients = dict[str, tuple[Array, Array]]
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def pvi_data() -> Path:
    """The folder of data files; skips the calling test where PVI_DATA is unset."""
    folder = os.environ.get("PVI_DATA")
    if not folder:
        pytest.skip("the environment variable PVI_DATA does not name a folder with the real data sets")
    return Path(folder)


def standardised(columns: Array) -> Array:
    """Columns [n, d] with mean 0 and (population) standard deviation 1; constant columns become 0."""
    scale = columns.std(0)
    return (columns - columns.mean(0)) / np.where(scale > 0, scale, 1)


def one_hot(values: pd.Series, coding: Literal["reference", "one-hot"] = "one-hot") -> Array:
    """Indicators [n, levels], sorted, missing being a level; "reference" drops the most frequent one."""
    values = values.astype(object).where(values.notna(), "missing").astype(str)
    indicators = pd.get_dummies(values, dtype=float)
    if coding == "reference":
        indicators = indicators.drop(columns=values.value_counts().sort_index().idxmax())
    return indicators.to_numpy()


def heart_disease(
    coding: Literal["reference", "one-hot"] = "reference",
    standardise: Literal["numeric", "all"] = "numeric",
    missing_indicators: bool = True,
    zero_is_missing: bool = False,
    intercept: bool = True,
) -> Clients:
    """UCI heart disease, one client a hospital (303, 294, 123 and 200 rows); y = whether disease was found.

    Columns: intercept, nine numeric ones (imputed by the mean, standardised), an indicator for each numeric
    column that has missing values, then the one-hot codes of cp, restecg, slope and thal. `zero_is_missing` treats
    a cholesterol or blood pressure of 0 as missing. With `standardise="all"` every column but the intercept is
    standardised.
    """
    folder = pvi_data() / "heart-disease"
    frames = [pd.read_csv(folder / f"processed.{name}.data", header=None, na_values="?") for name in HOSPITALS]
    table = pd.concat(frames, ignore_index=True).astype(float)
    if zero_is_missing:
        table[[3, 4]] = table[[3, 4]].replace(0.0, np.nan)
    categorical = [2, 6, 10, 12]
    numeric = table.drop(columns=[*categorical, 13])
    absent = numeric.isna().to_numpy(dtype=float)
    parts = [standardised(numeric.fillna(numeric.mean()).to_numpy())]
    if missing_indicators:
        parts.append(absent[:, absent.any(0)])
    parts += [one_hot(table[column], coding) for column in categorical]
    if standardise == "all":
        parts = [standardised(part) for part in parts]
    design = np.hstack([np.ones((len(table), int(intercept))), *parts])
    y = (table[13] > 0).to_numpy(dtype=float)
    ends = np.cumsum([len(frame) for frame in frames])[:-1]
    return dict(zip(HOSPITALS, zip(np.split(design, ends), np.split(y, ends), strict=True), strict=True))


_UCI = {  # file, separator, numeric and categorical columns, target column, its positive value
    "credit": ("credit/crx.data", ",", [1, 2, 7, 10, 13, 14], [0, 3, 4, 5, 6, 8, 9, 11, 12], 15, "+"),
    "bank": ("bank/bank-full.csv.gz", ";", [0, 5, 9, 11, 12, 13, 14], [1, 2, 3, 4, 6, 7, 8, 10, 15], 16, "yes"),
    "adult": ("adult/adult.data", ",", [0, 2, 4, 10, 11, 12], [1, 3, 5, 6, 7, 8, 9, 13], 14, ">50K"),
}


def uci(name: Literal["credit", "bank", "adult"], scale_on: Literal["train", "all"] = "train") -> Clients:
    """UCI tables as {"train": ..., "test": ...}: intercept, standardised numeric columns, all one-hot columns (0 or 1).

    Rows are permuted by numpy's RandomState(0), the last fifth is the test set. Credit drops rows with missing values;
    in adult "?" is a level. `scale_on="all"` standardises with the test rows too, as published results do.
    """
    file, separator, numeric, categorical, target, positive = _UCI[name]
    table = pd.read_csv(
        pvi_data() / file,
        sep=separator,
        header=0 if name == "bank" else None,
        skipinitialspace=True,
        na_values="?" if name == "credit" else None,
        keep_default_na=False,
    ).dropna()
    table.columns = pd.RangeIndex(table.shape[1])
    table = table.iloc[np.random.RandomState(0).permutation(len(table))]
    split = len(table) - len(table) // 5
    numbers = table[numeric].to_numpy(dtype=float)
    known = numbers[:split] if scale_on == "train" else numbers
    numbers = (numbers - known.mean(0)) / known.std(0)
    design = np.hstack([np.ones((len(table), 1)), numbers, *[one_hot(table[column]) for column in categorical]])
    y = (table[target] == positive).to_numpy(dtype=float)
    return {"train": (design[:split], y[:split]), "test": (design[split:], y[split:])}


def breast_cancer(features: int | None = None, clients: int = 5, intercept: bool = True) -> Clients:
    """WDBC from scikit-learn: 569 rows, 30 standardised columns, y = benign; clients by k-means on all columns.

    `features` keeps only the first so many columns; the clients' rows stay the same.
    """
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_breast_cancer

    columns, y = load_breast_cancer(return_X_y=True)
    columns = standardised(columns)
    labels = KMeans(clients, n_init=10, random_state=0).fit_predict(columns)
    design = np.hstack([np.ones((len(y), int(intercept))), columns[:, :features]])
    return {f"cluster{k}": (design[labels == k], y[labels == k].astype(float)) for k in range(clients)}


def pooled(clients: Clients) -> tuple[Array, Array]:
    """All rows of all clients, in the clients' order."""
    return np.concatenate([c[0] for c in clients.values()]), np.concatenate([c[1] for c in clients.values()])
