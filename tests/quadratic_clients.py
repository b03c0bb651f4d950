"""Clients whose losses are known quadratics: linear regressions that differ in slopes, covariates and sizes."""

from functools import partial

import torch

from pvi.models import linear_regression

NOISE = 0.5
MODEL = partial(linear_regression.model, noise_scale=NOISE)
DOUBLE = torch.float64
START = torch.zeros(3, dtype=DOUBLE)
"""Where runs of MODEL without a guide start."""


def clients(sizes=(30, 12, 40)):
    generator, found = torch.Generator().manual_seed(3), []
    for k, n in enumerate(sizes):
        x = torch.randn(n, 2, generator=generator, dtype=DOUBLE) * torch.tensor([0.5 + k, 1.5 - 0.5 * k], dtype=DOUBLE)
        y = x @ torch.tensor([1.0 + k, -2.0 * k], dtype=DOUBLE) + k
        found.append((x, y + NOISE * torch.randn(n, generator=generator, dtype=DOUBLE)))
    return found


def quadratic(x, y):
    """H and g of a client's mean negative log likelihood ½ θ'Hθ - g'θ, θ = (weights, bias)."""
    a = torch.cat([x, x.new_ones(len(x), 1)], 1)
    return a.T @ a / (len(y) * NOISE**2), a.T @ y / (len(y) * NOISE**2)


def theta_of(posterior):
    """(weights, bias) of a posterior."""
    return torch.cat([posterior.mean["weights"], posterior.mean["bias"].reshape(1)])


def personal_of(result):
    """θ of every client, ``[M, 3]``."""
    return torch.stack([theta_of(posterior) for posterior in result.personal.values()])


def shares(data):
    """Of the rows, by client."""
    rows = torch.tensor([len(y) for _, y in data], dtype=DOUBLE)
    return rows / rows.sum()
