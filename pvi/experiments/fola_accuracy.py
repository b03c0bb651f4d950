"""What is measured of a round: accuracies of the server's mean (GA), of the clients' (LA), and between two clients'."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pvi import Posterior, Result
from pvi.experiments.protocol import Pair
from pvi.programs.batch import Batch
from pvi.programs.predictive import expected_values

PERCENT = 100.0
AT_ONCE = 20_000
"""Images times networks of one forward pass."""
RIDGE = "ga_at_"
"""Columns of the accuracies along π_1, such as ``ga_at_0.50``."""


def mean(posterior: Posterior, natural: Tensor | None = None) -> dict[str, Tensor]:
    """The mean of real sites by site, of η in the posterior's family: no covariance is computed."""
    found = posterior.family.location(posterior.natural if natural is None else natural)
    return posterior.coordinates.constrain(found)


def global_and_local(result: Result, clients: Mapping[str, Pair], test: Pair) -> dict[str, float]:
    """``ga`` in per cent, and ``la`` = Σ π_n of the clients' on the same rows, π_n their shares of the training rows.

    ``la`` where clients keep what they came to before the server's answer. Raises ``ValueError`` where some did not.
    """
    found = {"ga": accuracies(result, [mean(result.posterior)], test)[0]}
    if result.personal:
        missing = [name for name in clients if name not in result.personal]
        if missing:
            raise ValueError(f"no local model of {', '.join(missing)}: LA is over all clients")
        local = accuracies(result, [mean(result.personal[name]) for name in clients], test)
        found["la"] = sum(share * one for share, one in zip(shares(clients), local, strict=True))
    return found


def shares(clients: Mapping[str, Pair]) -> list[float]:
    """π_n by client."""
    rows = [len(y) for _, y in clients.values()]
    return [number / sum(rows) for number in rows]


def ridge(result: Result, names: Sequence[str], test: Pair, points: int) -> dict[str, float]:
    """Accuracy in per cent of the product q_1^π q_2^(1 - π) of two clients' posteriors, at ``points`` of π in [0, 1].

    η = π η_1 + (1 - π) η_2, whose means are the ridge line of the mixture of both (Liu et al. 2021, section IV-E). For
    points with the same spread it is the line between them, FedAvg's.
    """
    one, two = (result.personal[name] for name in names)
    grid = torch.linspace(0, 1, points, dtype=torch.float64).tolist()
    values = [mean(one, pi * one.natural + (1 - pi) * two.natural) for pi in grid]
    found = accuracies(result, values, test)
    return {f"{RIDGE}{pi:.2f}": accuracy for pi, accuracy in zip(grid, found, strict=True)}


def accuracies(result: Result, values: Sequence[Mapping[str, Tensor]], test: Pair) -> list[float]:
    """In per cent, of the networks with these weights, all in one pass over a few images at a time."""
    assert result.model is not None
    (site,), like = result.observed, result.posterior.natural
    draws = {name: torch.stack([value[name] for value in values]) for name in values[0]}
    right = torch.zeros(len(values), dtype=torch.float64, device=like.device)
    for x, y in zip(*[part.split(max(1, AT_ONCE // len(values))) for part in test], strict=True):
        batch = Batch((x,), {}).to(like.device, like.dtype)
        guess = expected_values(result.model, result.observed, draws, batch)[site].argmax(-1)
        right += (guess == y.to(like.device)).sum(1)
    return (PERCENT * right / len(test[1])).tolist()
