"""Small federations of regressions, runs of them round by round, and q as the oracles write it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from oracles import Array, Client, Likelihood, LocalObjective, Natural
from torch import Tensor

from pvi.families import FullGaussian, Product
from pvi.models import linear_regression, logistic_regression, poisson_regression
from pvi.play import play_round
from pvi.posterior import Posterior
from pvi.rounds import Plan, RunState
from pvi.start import start

Rows = tuple[Tensor, Tensor]
NOISE = 0.7
NODES = 250
"""For the oracles' Gauss-Hermite rule: 64 leave 1e-6 where a row's predictor has a standard deviation of 2.5."""
MODELS: dict[Likelihood, Callable[..., Any]] = {
    "bernoulli": logistic_regression.model,
    "poisson": poisson_regression.model,
    "gaussian": partial(linear_regression.model, noise_scale=NOISE),
}


def regression(
    likelihood: Likelihood, sizes: Sequence[int] = (25, 9, 40, 16), features: int = 3, seed: int = 0
) -> list[Rows]:
    """Clients with features x ``[n, features]`` around means of their own, and targets y ``[n]``."""
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(size=features), 0.3
    clients = []
    for n in sizes:
        x = rng.normal(size=features) + rng.normal(size=(n, features)) @ rng.normal(size=(features, features))
        x /= np.sqrt(features)
        f = x @ weights + bias
        y = {
            "bernoulli": lambda f: rng.random(len(f)) < 1 / (1 + np.exp(-f)),
            "poisson": lambda f: rng.poisson(np.exp(np.minimum(f, 3))),
            "gaussian": lambda f: f + NOISE * rng.normal(size=len(f)),
        }[likelihood](f)
        clients.append((torch.as_tensor(x), torch.as_tensor(y, dtype=torch.float64)))
    return clients


def designs(data: Sequence[Rows]) -> list[Client]:
    """The oracles' clients: the intercept is the last column, as the bundled models' bias is their last site."""
    return [(np.hstack([x.numpy(), np.ones((len(x), 1))]), y.numpy()) for x, y in data]


def pooled(data: Sequence[Rows]) -> Client:
    """All clients' rows, as the oracles' one client."""
    parts = designs(data)
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def begin(model: Callable[..., Any], data: Any, rounds: int = 1, **options: Any) -> tuple[Plan, RunState]:
    """A run that has not played yet; options as in :func:`pvi.fit`."""
    chosen: dict[str, Any] = {"guide": None, "algorithm": "pvi", "schedule": None, "damping": None, "solver": None}
    chosen |= {"executor": "auto", "seed": 0, "acceleration": None} | options
    return start(
        model, data, chosen["guide"], chosen["algorithm"], chosen["schedule"], chosen["damping"], rounds,
        chosen["solver"], chosen["executor"], chosen["seed"], "cpu", torch.float64,
        acceleration=chosen["acceleration"],
    )  # fmt: skip


def play(model: Callable[..., Any], data: Any, rounds: int, **options: Any) -> Iterator[RunState]:
    """The state after each round."""
    plan, state = begin(model, data, rounds, **options)
    for _ in range(rounds):
        state = play_round(plan, state)
        yield state


def last(states: Iterator[RunState]) -> RunState:
    """The state after the last round."""
    *_, state = states
    return state


def oracle_natural(family: Product, natural: Tensor) -> Natural:
    """η as the oracles write it: (h, precision), the latter ``[d]`` or ``[d, d]``; improper ones too."""
    parts = list(zip(family.members, family.split(natural).values(), strict=True))
    h = torch.cat([eta[: member.size] for member, eta in parts]).numpy()
    precisions = [member.precision_matrix(eta) for member, eta in parts]
    if isinstance(family.members[0], FullGaussian):
        (precision,) = precisions
        return h, precision.numpy()
    return h, torch.cat([precision.diagonal() for precision in precisions]).numpy()


def oracle_moments(posterior: Posterior) -> Natural:
    """Mean ``[d]`` and covariance ``[d]`` or ``[d, d]``."""
    h, precision = oracle_natural(posterior.family, posterior.natural)
    if precision.ndim == 1:
        return h / precision, 1 / precision
    covariance = np.linalg.inv(precision)
    return covariance @ h, covariance


def library_natural(family: Product, h: Array, precision: Array) -> Tensor:
    """η of exp(h·θ - ½ θᵀ Λ θ), the inverse of :func:`oracle_natural`."""
    parts, start = [], 0
    for member in family.members:
        stop = start + member.size
        if precision.ndim == 1:
            parts += [h[start:stop], -0.5 * precision[start:stop]]
        else:
            halved = precision - 0.5 * np.diag(np.diag(precision))
            parts += [h, -halved[np.tril_indices(member.size)]]
        start = stop
    natural = torch.as_tensor(np.concatenate(parts))
    again = oracle_natural(family, natural)
    assert all(np.allclose(one, other) for one, other in zip(again, (h, precision), strict=True))
    return natural


def site_parameters(client: Client, mean: Array, covariance: Array, likelihood: Likelihood) -> Natural:
    """∇_μ E_q[log p(y_m | θ)] as (h, precision): E[∇log p] - E[∇²log p] m and -E[∇²log p], or its diagonal."""
    design, y = client
    size = design.shape[1]
    flat = LocalObjective(design, y, np.zeros(size), np.zeros((size, size)), likelihood, NOISE, NODES)
    rows, scale = flat.moments(mean, covariance)
    precision = -(design.T * (rows.s / scale)) @ design
    if covariance.ndim == 1:
        precision = np.diag(precision)
    return design.T @ rows.a + (precision * mean if covariance.ndim == 1 else precision @ mean), precision
