"""A small result with personal posteriors: three hospitals whose coefficients differ."""

from functools import cache

import torch
from small_results import COLUMNS
from torch import Tensor

import pvi

WEIGHTS = {"north": (2.0, 0.5, 0.0), "south": (-1.5, 0.5, 0.0), "island": (0.3, -1.0, 1.0)}
SIZES = {"north": 60, "south": 90, "island": 40}


def hospitals(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, size in SIZES.items():
        x = torch.randn(size, len(COLUMNS), generator=generator, dtype=torch.float64)
        logits = x @ torch.tensor(WEIGHTS[name], dtype=torch.float64)
        found[name] = (x, torch.bernoulli(torch.sigmoid(logits), generator=generator))
    return found


def heldout() -> dict[str, tuple[Tensor, Tensor]]:
    return hospitals(seed=1)


@cache
def personal() -> pvi.Result:
    algorithm = pvi.PFedBayes(zeta=1.0, learning_rate=0.05, global_learning_rate=0.05)
    return pvi.fit("logistic_regression", hospitals(seed=0), algorithm=algorithm, rounds=10, columns=COLUMNS)
