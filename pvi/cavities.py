"""Cavity rules: what a client's likelihood is combined with, and what its new factor takes the place of."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from pvi.factors import Factor, as_factor, cavity, divide, power, unit
from pvi.posterior import Posterior


class Setting(NamedTuple):
    """What a client is told of the whole: the prior as a factor, how many clients there are, its share of the rows.

    ``version`` counts the server's steps so far: at 0 no client's rows are in q. ``beside`` is what the server sums up
    beside q where the algorithm has such a thing (SCAFFOLD's control variate), ``None`` before the first answers.
    """

    prior: Factor
    num_clients: int
    row_share: float = 1.0
    version: int = 0
    beside: Tensor | None = None


class Cavity(NamedTuple):
    """The ``factor`` that the likelihood is combined with, and the one that q_m / cavity takes the place of."""

    factor: Factor
    replaced: Factor


CavityRule = Callable[[Posterior, Factor, Setting], Cavity]
"""From the q that the client was sent, its own factor t, and the setting."""


def deletion(posterior: Posterior, factor: Factor, setting: Setting) -> Cavity:
    """q / t: everything but the client (PVI, algorithm 1)."""
    return Cavity(cavity(posterior, factor), factor)


def no_deletion(posterior: Posterior, factor: Factor, setting: Setting) -> Cavity:
    """q itself: the client's rows count once more at every visit (streaming variational Bayes)."""
    return Cavity(as_factor(posterior), unit(posterior.family, posterior.natural))


def prior_alone(posterior: Posterior, factor: Factor, setting: Setting) -> Cavity:
    """p: no client hears of the others (Bayesian committee machine, the same prior everywhere)."""
    return Cavity(setting.prior, factor)


def prior_share(posterior: Posterior, factor: Factor, setting: Setting) -> Cavity:
    """p^(1/M): no client hears of the others, the prior is split among them (Bayesian committee machine)."""
    return Cavity(power(setting.prior, 1 / setting.num_clients), factor)


def prior_row_share(posterior: Posterior, factor: Factor, setting: Setting) -> Cavity:
    """p^(n_m / n): as :func:`prior_share`, by rows."""
    return Cavity(power(setting.prior, setting.row_share), factor)


def average_deletion(posterior: Posterior, factor: Factor, setting: Setting) -> Cavity:
    """q / t with the average factor t = (q / p)^(1/M) (stochastic EP, Li et al. 2015)."""
    average = power(divide(as_factor(posterior), setting.prior), 1 / setting.num_clients)
    return Cavity(cavity(posterior, average), average)
