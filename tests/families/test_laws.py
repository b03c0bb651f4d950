"""Every family of the library obeys the law suite; families that are wrong in one place do not."""

import importlib
import inspect
import math
import pkgutil
from collections import Counter
from dataclasses import dataclass, fields

import pytest
import torch

import pvi.families
from pvi.families import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    Family,
    FullGaussian,
    Gamma,
    Product,
    is_discrete,
    is_gaussian,
)
from pvi.testing import check_family
from pvi.testing.case import build_case
from pvi.testing.exact_laws import round_trips


def classes():
    """All classes defined in a module of pvi.families."""
    for info in pkgutil.iter_modules(pvi.families.__path__, "pvi.families."):
        module = importlib.import_module(info.name)
        for _, found in inspect.getmembers(module, inspect.isclass):
            if found.__module__ == info.name and not found.__name__.startswith("_"):
                yield found


def of_size(cls, size):
    """The family of a class over vectors of a length, or None where the class is no such family."""
    try:
        family = cls(size)
        return family if isinstance(family, Family) else None
    except (TypeError, ValueError):  # other arguments, or too few categories; a class that is no family fails on them
        return None


def is_composite(cls):
    return (
        {"names", "members"} <= {field.name for field in fields(cls)} if hasattr(cls, "__dataclass_fields__") else False
    )


def discovered():
    simple = [cls for cls in classes() if of_size(cls, 2) is not None]
    found = [family for cls in simple for size in (1, 2, 3) if (family := of_size(cls, size)) is not None]
    found += [cls(3, rows=2) for cls in simple if "rows" in {field.name for field in fields(cls)}]
    members = tuple(of_size(cls, 2) for cls in simple)
    groups = [members, tuple(filter(is_gaussian, members)), tuple(filter(is_discrete, members)), members[:1]]
    for cls in classes():
        if is_composite(cls):
            found += [cls(tuple(f"site {k}" for k in range(len(group))), group) for group in groups]
    return found


def test_discovery_finds_all_exported_families():
    exported = {getattr(pvi.families, name) for name in pvi.families.__all__}
    families = {cls for cls in classes() if of_size(cls, 2) is not None or is_composite(cls)}
    assert families <= exported
    assert {DiagonalGaussian, FullGaussian, Gamma, Beta, Dirichlet, Categorical, Bernoulli, Product} <= families
    counts = Counter(type(family) for family in discovered())
    assert set(counts) == families
    # Only a single category is no family.
    assert all(counts[cls] >= 3 for cls in families)


@pytest.mark.parametrize("family", discovered(), ids=repr)
def test_laws(family):
    check_family(family)


def test_nested_products_obey_the_laws():
    inner = Product(("b", "c"), (DiagonalGaussian(1), FullGaussian(2)))
    check_family(Product(("a", "b+c"), (FullGaussian(1), inner)))


def test_unconstrained_coordinates_keep_small_scales():
    """A posterior sd of 1e-6 in single precision survives the optimiser's coordinates."""
    case = build_case(FullGaussian(3), torch.float32, 1e-6, seed=1)
    round_trips(case)


def test_nested_products_of_all_kinds_obey_the_laws():
    inner = Product(("b", "c"), (Gamma(1), Categorical(3)))
    check_family(Product(("a", "b+c"), (Dirichlet(3), inner)))


@dataclass(frozen=True)
class Wrong(DiagonalGaussian):
    """Right but for what a subclass changes."""


class OffByAConstant(Wrong):
    """Cancels in differences, ruins evidences."""

    def log_partition(self, natural):
        return super().log_partition(natural) + 0.5 * math.log(2 * math.pi**2)


class WrongMean(Wrong):
    def mean_parameters(self, natural):
        loc, variance = self.location(natural), self.variance(natural)
        return torch.cat([loc, loc.square() + 1.01 * variance], -1)


class WrongDraws(Wrong):
    def sample(self, natural, sample_shape=(), generator=None):
        loc = self.location(natural)
        return loc + 1.05 * (super().sample(natural, sample_shape, generator) - loc)


class DetachedDraws(Wrong):
    def sample(self, natural, sample_shape=(), generator=None):
        return super().sample(natural.detach(), sample_shape, generator) + 0 * natural.sum()


class GlobalDraws(Wrong):
    def sample(self, natural, sample_shape=(), generator=None):
        return super().sample(natural, sample_shape, None)


class AlwaysProper(Wrong):
    def is_proper(self, natural):
        return torch.isfinite(natural).all(-1)


class FarBoundary(Wrong):
    def boundary(self, natural, delta):
        return 1.001 * super().boundary(natural, delta)


class FiniteWhereImproper(Wrong):
    def log_partition(self, natural):
        value = super().log_partition(natural)
        return torch.where(torch.isfinite(value), value, torch.zeros_like(value))


class NegativeScale(Wrong):
    def free_scale(self, natural):
        return -super().free_scale(natural)


class UnbatchedBoundary(Wrong):
    def boundary(self, natural, delta):
        return super().boundary(natural, delta).amin().expand(natural.shape[:-1])


class SwappedMarginal(Wrong):
    def marginal(self, natural, start, stop):
        return super().marginal(natural, self.size - stop, self.size - start)


class WrongRecovery(Wrong):
    def recover(self, log_density, like):
        return super().recover(log_density, like) * 1.001


class WrongNaturalGradient(Wrong):
    """Forgets that the second moment holds the mean."""

    def natural_gradient(self, natural, gradient):
        precision = self.variance(natural).reciprocal()
        return torch.cat([precision, 0.5 * precision.square()], -1) * gradient


class VarianceAsScale(Wrong):
    def from_noise(self, natural, noise):
        return self.location(natural) + self.variance(natural) * noise


class SecondMoment(Wrong):
    def moments(self, natural):
        return tuple(self.mean_parameters(natural).split(self.size, -1))


class SquaredNothing(Wrong):
    """Predictor variance with |A| in place of A²."""

    def predictor_variance(self, natural, design, squares=None):
        return design.abs() @ self.variance(natural)


class QuadraticAtZero(Wrong):
    def quadratic(self, gradient, design, weights, at, squares=None):
        return super().quadratic(gradient, design, weights, torch.zeros_like(at))


class RelocatedShift(Wrong):
    """Keeps Λm instead of Λ."""

    def relocate(self, natural, loc):
        return torch.cat([loc, natural[..., self.size :]], -1)


class DoublePrecision(Wrong):
    """Silently computes and answers in double precision."""

    def log_partition(self, natural):
        return super().log_partition(natural.double())


WRONG = {
    OffByAConstant: "agrees_with_torch",
    WrongMean: "round_trips|gradient_of_log_partition",
    WrongDraws: "draws_from_noise",
    DetachedDraws: "derivative_of_draws",
    GlobalDraws: "draws_from_noise",
    WrongNaturalGradient: "natural_gradients",
    VarianceAsScale: "draws_from_noise",
    SecondMoment: "moments",
    AlwaysProper: "propriety_at_the_edge|negation_is_improper",
    FarBoundary: "propriety_at_the_edge",
    FiniteWhereImproper: "propriety_at_the_edge",
    NegativeScale: "free_scale_is_positive",
    UnbatchedBoundary: "propriety_at_the_edge|batches_are_loops",
    SwappedMarginal: "marginals",
    WrongRecovery: "recovers_itself",
    SquaredNothing: "predictor_variances",
    QuadraticAtZero: "quadratics",
    RelocatedShift: "relocation",
    DoublePrecision: "sizes_and_dtypes",
}


@pytest.mark.parametrize("cls", WRONG, ids=lambda cls: cls.__name__)
def test_a_wrong_family_is_caught_by_name(cls):
    with pytest.raises(AssertionError, match=f"{cls.__name__}.* breaks the law ({WRONG[cls]}) "):
        check_family(cls(2))


def test_what_is_no_family_is_told_so():
    with pytest.raises(AssertionError, match=r"is no Family: it lacks .*log_partition"):
        check_family(object())


class WrongConstant(Gamma):
    """The Gamma function's argument shifted by one: the same law for every x at fixed shape, other evidences."""

    def log_partition(self, natural):
        return super().log_partition(natural) + (natural[..., : self.size] + 1).log().sum(-1)


class ShortShapes(Gamma):
    """Draws of G(α + 1) that were not brought down to α."""

    def sample(self, natural, sample_shape=(), generator=None):
        more = torch.cat([natural[..., : self.size] + 1, natural[..., self.size :]], -1)
        return super().sample(more, sample_shape, generator)


class DetachedShapes(Gamma):
    """Draws that depend on the shape without a derivative in it."""

    def sample(self, natural, sample_shape=(), generator=None):
        shape = natural[..., : self.size].detach()
        return super().sample(torch.cat([shape, natural[..., self.size :]], -1), sample_shape, generator)


class SharedGlobalDraws(Gamma):
    def sample(self, natural, sample_shape=(), generator=None):
        return super().sample(natural, sample_shape, None)


class RateAsScale(Gamma):
    def moments(self, natural):
        alpha, beta = self._split(natural)
        return alpha * beta, alpha * beta.square()


class SmallerCone(Gamma):
    """Consistent in itself, but shapes below 0.1 are refused without a reason."""

    def is_proper(self, natural):
        return super().is_proper(natural) & (natural[..., : self.size] > -0.9).all(-1)

    def boundary(self, natural, delta):
        room = torch.cat([natural[..., : self.size] + 0.9, -natural[..., self.size :]], -1)
        change = torch.cat([delta[..., : self.size], -delta[..., self.size :]], -1)
        return torch.where(change < 0, room / -change, torch.full_like(room, math.inf)).amin(-1)


class DiagonalFisher(Dirichlet):
    """Forgets that probabilities sum to one."""

    def natural_gradient(self, natural, gradient):
        return gradient / torch.polygamma(1, natural + 1)


class WholeSimplex(Dirichlet):
    """A density with respect to the surface of the simplex, whose constant is another."""

    def log_partition(self, natural):
        return super().log_partition(natural) - 0.5 * self.rows * math.log(self.categories)


class RowsTogether(Dirichlet):
    def marginal(self, natural, start, stop):
        return Dirichlet(stop - start), natural[..., start:stop]


class Smoothed(Categorical):
    """Probabilities a little too even."""

    def mean_parameters(self, natural):
        return super().mean_parameters(0.99 * natural)


class MissingValue(Categorical):
    def enumerate(self, like=None):
        return super().enumerate(like)[:-1]


class StraightThrough(Bernoulli):
    """Draws with a made-up derivative."""

    def sample(self, natural, sample_shape=(), generator=None):
        return super().sample(natural, sample_shape, generator) + 0 * natural


WRONG_ELSEWHERE = {
    WrongConstant: "gradient_of_log_partition",
    ShortShapes: "sampled_statistics",
    DetachedShapes: "pathwise_gradients",
    SharedGlobalDraws: "draws_repeat",
    RateAsScale: "sampled_moments",
    SmallerCone: "propriety_at_the_edge",
    DiagonalFisher: "natural_gradients",
    WholeSimplex: "agrees_with_torch",
    RowsTogether: "marginals",
    Smoothed: "round_trips|gradient_of_log_partition",
    MissingValue: "all_values",
    StraightThrough: "draws_without_derivative",
}


@pytest.mark.parametrize("cls", WRONG_ELSEWHERE, ids=lambda cls: cls.__name__)
def test_another_wrong_family_is_caught_by_name(cls):
    with pytest.raises(AssertionError, match=f"{cls.__name__}.* breaks the law ({WRONG_ELSEWHERE[cls]}) "):
        check_family(cls(3))
