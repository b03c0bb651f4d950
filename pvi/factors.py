"""Factors t(θ) and their algebra: products are sums of natural parameters.

A :class:`Factor` may be improper, a :class:`~pvi.posterior.Posterior` may not. They are two types, so that to count
a client's data twice (multiply a posterior by a posterior) or to normalise a cavity by accident is a type error.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families import Coordinates, Family, Product
from pvi.posterior import Posterior


@dataclass(frozen=True)
class Factor:
    """t(x) = exp(log_scale + η·T(x)): an approximate likelihood, possibly improper.

    ``natural`` is ``[num_natural]``; ``log_scale`` is a scalar tensor in nats, exact while every operation that led
    here kept its constants (PVI's division does), and what makes Σ log scales an evidence.
    """

    family: Family
    natural: Tensor
    log_scale: Tensor

    def log_value(self, x: Tensor) -> Tensor:
        """log t(x) in nats, ``[..., size] -> [...]``, at unconstrained x."""
        return self.log_scale + (self.natural * self.family.statistics(x)).sum(-1)

    @property
    def is_proper(self) -> bool:
        """Whether the factor can be normalised."""
        return bool(self.family.is_proper(self.natural))


def unit(family: Family, like: Tensor) -> Factor:
    """t = 1, with the dtype and device of ``like``."""
    return Factor(family, like.new_zeros(family.num_natural), like.new_zeros(()))


def multiply(first: Factor, second: Factor) -> Factor:
    """t·u."""
    _same_family(first, second)
    return Factor(first.family, first.natural + second.natural, first.log_scale + second.log_scale)


def divide(first: Factor, second: Factor) -> Factor:
    """t/u."""
    _same_family(first, second)
    return Factor(first.family, first.natural - second.natural, first.log_scale - second.log_scale)


def power(factor: Factor, exponent: float) -> Factor:
    """t^a."""
    _check_factor(factor)
    return Factor(factor.family, exponent * factor.natural, exponent * factor.log_scale)


def damp(old: Factor, new: Factor, damping: float) -> Factor:
    """t_old^(1-ρ) t_new^ρ: a convex combination of natural parameters."""
    if not 0 < damping <= 1:
        raise ValueError(f"damping must lie in (0, 1], got {damping}")
    return multiply(power(old, 1 - damping), power(new, damping))


def as_factor(posterior: Posterior) -> Factor:
    """q as a factor, its normaliser in the log scale."""
    if not isinstance(posterior, Posterior):
        raise TypeError(f"expected a Posterior, got {type(posterior).__name__}; see normalise")
    log_partition = posterior.family.log_partition(posterior.natural)
    return Factor(posterior.family, posterior.natural, -log_partition)


def cavity(posterior: Posterior, factor: Factor) -> Factor:
    """q/t: everything but the client that holds t. May be improper."""
    return divide(as_factor(posterior), factor)


def normalise(factor: Factor, coordinates: Coordinates) -> tuple[Posterior, Tensor]:
    """The posterior proportional to a proper factor, and its log normaliser in nats.

    Raises :class:`~pvi.posterior.ImproperError` where the factor is improper.
    """
    _check_factor(factor)
    if not isinstance(factor.family, Product):
        raise TypeError(f"a posterior over sites needs a Product family, got {type(factor.family).__name__}")
    posterior = Posterior(factor.family, factor.natural, coordinates)
    return posterior, factor.log_scale + factor.family.log_partition(factor.natural)


def _check_factor(*factors: Factor) -> None:
    for factor in factors:
        if not isinstance(factor, Factor):
            raise TypeError(f"expected a Factor, got {type(factor).__name__}; see as_factor and cavity")


def _same_family(first: Factor, second: Factor) -> None:
    _check_factor(first, second)
    if first.family != second.family:
        raise ValueError(f"factors of two families: {first.family} and {second.family}")


def is_finite(factor: Factor) -> bool:
    """Whether every natural parameter and the log scale are finite."""
    return bool(torch.isfinite(factor.natural).all()) and bool(torch.isfinite(factor.log_scale))
