"""Small results whose clients have latents of their own."""

from functools import cache

import pyro
import pyro.distributions as dist
import torch
from small_results import COLUMNS, regression_data
from torch import Tensor

import pvi


@cache
def mixed(guide: str | None = None, rounds: int = 6, columns: tuple[str, ...] = COLUMNS) -> pvi.Result:
    """An intercept a client, one value a client."""
    return pvi.fit(
        "mixed_logistic_regression", regression_data(), guide=guide, damping=0.5, rounds=rounds, columns=columns,
        acceleration="anderson",
    )  # fmt: skip


def overdispersed(y: Tensor | None = None, n: int | None = None) -> Tensor:
    """An effect a row, and a shared rate."""
    rate = pyro.sample("rate", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(y) if n is None else n):
        effect = pyro.sample("effect", dist.Normal(0.0, 0.5))
        return pyro.sample("y", dist.Poisson((rate + effect).exp()), obs=y)


@cache
def by_row() -> pvi.Result:
    y = torch.poisson(3 * torch.ones(13, dtype=torch.float64), generator=torch.Generator().manual_seed(0))
    return pvi.fit(overdispersed, {"a": {"y": y[:5]}, "b": {"y": y[5:]}}, damping=0.5, rounds=10)
