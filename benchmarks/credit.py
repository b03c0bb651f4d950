"""Credit, ten clients, exact local solves: KL(q, q of global VI) in nats, beside the reference's numbers.

Run from the repository root: ``PVI_DATA=... python benchmarks/credit.py [--deals 20]``. The published preprocessing
(``tests/datasets.py``): 523 shuffled training rows, every column but the intercept standardised on all rows. The large
clients of a split are dealt their rows at random, and the divergences depend on the deal; so each is given as geometric
mean and factor of one standard deviation over the deals, with the deal whose worst divergence is nearest.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import pvi
from pvi.data import SPLIT_A, SPLIT_B, small_large

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from datasets import uci
from oracles import global_vi, kl_divergence

RUNS: dict[str, dict[str, Any]] = {
    "BCM same": {"algorithm": "bcm-same"},
    "BCM split, by rows": {"algorithm": pvi.BCMSplit(shares="rows")},
    "BCM split, by clients": {"algorithm": "bcm-split"},
    "sequential, 1 round": {"schedule": "sequential", "damping": 1.0, "rounds": 1},
    "sequential, 5 rounds": {"schedule": "sequential", "damping": 1.0, "rounds": 5},
    "synchronous ρ = 0.2, 1 round": {"damping": 0.2, "rounds": 1},
    "synchronous ρ = 0.2, 10 rounds": {"damping": 0.2, "rounds": 10},
}
REFERENCE = {
    "A": (24.0, 228.0, None, 10.1, 2.1, 42.7, 2.6),
    "B": (13.0, 55.0, None, 7.7, 1.7, 38.2, 2.4),
}


def model(x: Tensor, y: Tensor) -> None:
    """Logistic regression; the intercept is a column."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def main() -> None:
    """Print one table a split."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deals", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    design, y = uci("credit", scale_on="all")["train"]
    best = global_vi(design, y)
    for name, split in (("A", SPLIT_A), ("B", SPLIT_B)):
        found = np.zeros((options.deals, len(RUNS)))
        for deal in range(options.deals):
            rows = small_large(y, seed=deal, **split)
            clients = [(torch.as_tensor(design[part]), torch.as_tensor(y[part])) for part in rows]
            for k, settings in enumerate(RUNS.values()):
                q = pvi.fit(model, clients, **settings).posterior
                mean, variance = q.mean["weights"].numpy(), q.sd["weights"].numpy() ** 2
                found[deal, k] = kl_divergence(mean, variance, best.mean, best.covariance)
        known = [k for k, value in enumerate(REFERENCE[name]) if value is not None]
        expected = np.array([REFERENCE[name][k] for k in known], dtype=float)
        off = np.abs(found[:, known] / expected - 1)
        nearest = int(off.max(1).argmin())
        print(f"\nSplit {name}, {options.deals} deals; nearest deal: {nearest} (worst {off[nearest].max():.0%} off)\n")
        print("| run | reference | mean | factor of one sd | nearest deal |\n| --- | --- | --- | --- | --- |")
        for k, run in enumerate(RUNS):
            logs = np.log(found[:, k])
            reference = REFERENCE[name][k]
            print(
                f"| {run} | {'' if reference is None else f'{reference:g}'} | {np.exp(logs.mean()):.1f} | "
                f"{np.exp(logs.std(ddof=1)):.2f} | {found[nearest, k]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
