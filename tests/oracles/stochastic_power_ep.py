"""Stochastic power EP: one average factor for all clients (Li, Hernández-Lobato and Turner 2015)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .federated import Client, Natural, add, is_proper, times
from .glm import Covariance
from .power_ep import gaussian_prior
from .tilted import Response, project_rows


class StochasticPowerEP(NamedTuple):
    """q = p · factor^M after a pass, the average factor, passes needed, and the last pass's largest change of q."""

    posterior: Natural
    factor: Natural
    passes: int
    change: float


def stochastic_power_ep(
    clients: Sequence[Client],
    alpha: float = 1.0,
    likelihood: Response = "bernoulli",
    prior_mean: ArrayLike = 0.0,
    prior_precision: ArrayLike = 1.0,
    covariance: Covariance = "full",
    step: float | None = None,
    averaged: bool = False,
    noise_scale: float = 1.0,
    tolerance: float = 1e-8,
    max_passes: int = 5000,
) -> StochasticPowerEP:
    """One average factor f for M clients (of one row, or of several with at most two coefficients): q = p f^M.

    A visit: the cavity is q / f^α, f_m = (projection / cavity)^(1/α), and f ← f^(1-step) f_m^step; the step is 1 / M
    unless given. The clients are visited in the given order, until q after a pass is q after the pass before (the
    limit is a cycle: it depends on order and step). With `averaged` (Li et al., averaged EP) all clients see the same
    q, f ← f^(1-step) (Π f_m^(1/M))^step with a step of 1/2 unless given, and the limit depends on neither.
    """
    count = len(clients)
    prior = gaussian_prior(clients[0][0].shape[1], prior_mean, prior_precision, covariance)
    rate = step if step is not None else 0.5 if averaged else 1 / count
    q, factor, change = prior, times(prior, 0.0), np.inf
    for passes in range(1, max_passes + 1):
        start, total = q, times(prior, 0.0)
        for client in clients:
            new = project_rows(*client, add(q, factor, -alpha), alpha, likelihood, noise_scale)[1]
            move = times(add(new, q, -1), 1 / alpha)  # f_m / f
            if averaged:
                total = add(total, move, 1 / count)
            else:
                factor, q = add(factor, move, rate), add(q, move, rate * count)
        if averaged:
            factor, q = add(factor, total, rate), add(q, total, rate * count)
        if not is_proper(q):
            raise RuntimeError(f"q is improper after {passes} passes: use a step below {rate}")
        change = max(np.abs(part).max() for part in add(q, start, -1))
        if change < tolerance:
            return StochasticPowerEP(q, factor, passes, float(change))
    raise RuntimeError(f"stochastic power EP still moves by {change:.1e} after {max_passes} passes")
