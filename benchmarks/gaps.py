"""The ELBO gap to exact global VI on all rows, as the tests bound it: the first table of docs/benchmarks.md.

Run from the repository root: ``PVI_DATA=... python benchmarks/gaps.py``.
"""

import sys
from pathlib import Path

import torch

import pvi
from pvi.models import logistic_regression

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from datasets import breast_cancer, heart_disease, pooled
from oracles import global_vi


def main() -> None:
    """One line a data set and coding."""
    torch.set_num_threads(1)
    cases = {
        "breast cancer, 30 features": breast_cancer,
        "heart disease, reference coding": heart_disease,
        "heart disease, full one-hot coding": lambda intercept=True: heart_disease("one-hot", intercept=intercept),
    }
    print("| data | mean field, synchronous | mean field, sequential | full, synchronous |")
    print("| --- | --- | --- | --- |")
    for name, load in cases.items():
        clients = {key: (torch.as_tensor(x), torch.as_tensor(y)) for key, (x, y) in load(intercept=False).items()}
        best = {form: global_vi(*pooled(load()), covariance=form).elbo for form in ("diagonal", "full")}
        runs = [
            best["diagonal"] - pvi.fit(logistic_regression.model, clients, damping=0.5, rounds=30).elbo,
            best["diagonal"]
            - pvi.fit(logistic_regression.model, clients, schedule="sequential", damping=1.0, rounds=15).elbo,
            best["full"] - pvi.fit(logistic_regression.model, clients, guide="full", damping=0.5, rounds=30).elbo,
        ]
        print(f"| {name} | " + " | ".join(f"{gap:.1e}" for gap in runs) + " |", flush=True)


if __name__ == "__main__":
    main()
