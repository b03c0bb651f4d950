"""Laws of what a Gaussian family offers to the deterministic solvers."""

from typing import cast

import torch
from torch import Tensor

from pvi.families import GaussianFamily, Product
from pvi.testing.case import Case, close, hessian, size_of

ROWS = 5


def _family(case: Case) -> GaussianFamily:
    return cast(GaussianFamily, case.family)


def _log_factor(case: Case, natural: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient at 0 and Hessian of η·T(x), by automatic differentiation."""

    def value(x: Tensor) -> Tensor:
        return (natural * case.family.statistics(x)).sum()

    zero = natural.new_zeros(case.family.size)
    return torch.func.grad(value)(zero), hessian(value, zero)


def _structure(case: Case) -> Tensor:
    """Which entries of a precision the family can hold, ``[size, size]`` of zeros and ones."""
    generic = case.normal(case.family.num_natural, stream=50)
    return (_log_factor(case, generic)[1] != 0).to(generic)


def precision_is_curvature(case: Case) -> None:
    """Λ = -∇²(η·T(x)), for improper factors too."""
    for natural in (*case.naturals, -case.naturals[1], case.naturals[1] - 2 * case.naturals[2]):
        _, curvature = _log_factor(case, natural)
        close(case, "precision_matrix", _family(case).precision_matrix(natural), -curvature, curvature.abs().max())


def moments(case: Case) -> None:
    """Location and variance are Λ⁻¹h and the diagonal of Λ⁻¹; with leading axes too."""
    family = _family(case)
    covariances = []
    for natural in case.naturals:
        gradient, curvature = _log_factor(case, natural)
        covariance = torch.linalg.inv(-curvature.double())
        loc = (covariance @ gradient.double()).to(natural)
        covariances.append(covariance.to(natural))
        spread = covariances[-1].diagonal().sqrt()
        close(case, "location", family.location(natural), loc, spread + loc.abs())
        close(case, "variance", family.variance(natural), spread.square(), spread.square())
        mean, variance = family.moments(natural)
        close(case, "moments (mean)", mean, loc, spread + loc.abs())
        close(case, "moments (variance)", variance, spread.square(), spread.square())
    variance = torch.stack([covariance.diagonal() for covariance in covariances])
    close(case, "variance of a batch", family.variance(case.naturals), variance, size_of(variance))
    loc = torch.stack([family.location(natural) for natural in case.naturals])
    close(case, "location of a batch", family.location(case.naturals), loc, size_of(loc) + variance.amax().sqrt())


def free_coordinates(case: Case) -> None:
    """``draw`` is m + L ε with L Lᵀ = Λ⁻¹; ``free_regulariser`` is (η_cav - η)·μ + A(η), improper cavities too."""
    family, size = _family(case), case.family.size
    zero = case.naturals.new_zeros(size)
    noise = case.normal(7, len(case.naturals), size, stream=61)
    frees = family.free(case.naturals)
    batch = family.draw(frees, noise)
    for k, natural in enumerate(case.naturals):
        covariance = torch.linalg.inv(-_log_factor(case, natural)[1].double()).to(natural)
        spread, loc = covariance.diagonal().sqrt(), family.location(natural)
        unit = spread + loc.abs()
        close(case, "draw(free, 0)", family.draw(frees[k], zero), loc, unit)
        scale = torch.func.jacrev(lambda e, k=k: family.draw(frees[k], e))(zero)
        close(case, "L Lᵀ", scale @ scale.mT, covariance, spread[:, None] * spread)
        close(case, "m + L ε", batch[:, k], loc + noise[:, k] @ scale.mT, unit)
        mean, value = family.mean_parameters(natural), family.log_partition(natural)
        for cavity in (case.naturals[1], -case.naturals[2]):
            terms = (cavity - natural) * mean
            unit = terms.abs().sum() + value.abs() + 1
            close(case, "free_regulariser", family.free_regulariser(frees[k], cavity), terms.sum() + value, unit)
    cavities = case.naturals.flip(0)
    mapped = torch.func.vmap(family.free_regulariser)(frees, cavities)
    close(case, "free_regulariser of a batch", family.free_regulariser(frees, cavities), mapped, size_of(mapped))


def draws_from_noise(case: Case) -> None:
    """``from_noise`` is m + S ε with S Sᵀ = Λ⁻¹, for batches too, and ``sample`` is it at standard normal noise."""
    family, size = _family(case), case.family.size
    zero = case.naturals.new_zeros(size)
    noise = case.normal(7, len(case.naturals), size, stream=58)
    batch = family.from_noise(case.naturals, noise)
    for k, natural in enumerate(case.naturals):
        covariance = torch.linalg.inv(-_log_factor(case, natural)[1].double()).to(natural)
        spread, loc = covariance.diagonal().sqrt(), family.location(natural)
        unit = spread + loc.abs()
        close(case, "from_noise(η, 0)", family.from_noise(natural, zero), loc, unit)
        # Column j is S e_j, the derivative of the draw along its j-th noise.
        scale = torch.func.jacrev(lambda e, natural=natural: family.from_noise(natural, e))(zero)
        close(case, "S Sᵀ", scale @ scale.mT, covariance, spread[:, None] * spread)
        close(case, "m + S ε", batch[:, k], loc + noise[:, k] @ scale.mT, unit)
    same = case.normal(len(case.naturals), size, stream=59)
    mapped = torch.func.vmap(family.from_noise)(case.naturals, same)
    close(case, "vmap(from_noise)", mapped, family.from_noise(case.naturals, same), size_of(mapped))
    # Members of a product draw one after the other from one stream.
    natural, generator = case.naturals[1], case.generator(59)
    sizes = [member.size for member in family.members] if isinstance(family, Product) else [size]
    if not isinstance(family, Product) or not any(isinstance(member, Product) for member in family.members):
        parts = [torch.randn((6, n), generator=generator, dtype=natural.dtype) for n in sizes]
        drawn = family.sample(natural, (6,), case.generator(59))
        close(case, "sample", drawn, family.from_noise(natural, torch.cat(parts, -1)), size_of(drawn))


def derivative_of_draws(case: Case) -> None:
    """The derivative of a draw in η is that of finite differences with the same noise."""
    family, natural = case.family, case.naturals[1].double()
    direction = case.normal(family.num_natural, stream=33).double() * case.unit
    step = 1e-5

    def draw(amount: Tensor) -> Tensor:
        return family.sample(natural + amount * direction, (10,), case.generator(34))

    zero = natural.new_zeros(())
    slope = torch.func.jacrev(draw)(zero)
    difference = (draw(zero + step) - draw(zero - step)) / (2 * step)
    error = (slope - difference).abs().max() / difference.abs().max()
    assert bool(error < 1e-6), f"the derivative of a draw is off by {error.item():.2g} from finite differences"


def negation_is_improper(case: Case) -> None:
    """-η and -η/2 of a proper η are improper, and on the way there lies a boundary."""
    family, naturals = case.family, case.naturals
    for factor in (-1.0, -0.5):
        assert not bool(family.is_proper(factor * naturals).any()), f"{factor:g} η of a proper η must be improper"
    assert bool(torch.isfinite(family.boundary(naturals, -2 * naturals)).all()), "-2η must have a boundary"


def predictor_variances(case: Case) -> None:
    """Var[A x] row by row is the diagonal of A Λ⁻¹ Aᵀ."""
    family, design = _family(case), case.normal(ROWS, case.family.size, stream=51)
    for natural in case.naturals:
        covariance = torch.linalg.inv(-_log_factor(case, natural)[1].double())
        expected = ((design.double() @ covariance) * design.double()).sum(1).to(natural)
        close(case, "predictor_variance", family.predictor_variance(natural, design), expected, expected)


def quadratics(case: Case) -> None:
    """The factor's gradient at ``at`` is g, its curvature AᵀWA on the family's structure; W of any sign."""
    family = _family(case)
    design = case.normal(ROWS, family.size, stream=52) / case.scale
    gradient = case.normal(family.size, stream=53) / case.scale
    at = case.normal(family.size, stream=54) * case.scale
    for weights in (case.normal(ROWS, stream=55).abs(), case.normal(ROWS, stream=56)):
        natural = family.quadratic(gradient, design, weights, at)
        at_zero, curvature = _log_factor(case, natural)
        expected = -_structure(case) * (design.mT @ (weights[:, None] * design))
        unit = expected.abs().max()
        close(case, "∇² of quadratic", curvature, expected, unit)
        close(case, "∇ of quadratic", at_zero + curvature @ at, gradient, gradient.abs().max() + unit * at.abs().max())


def relocation(case: Case) -> None:
    """``relocate`` moves the mean, keeps the precision; improper factors are stationary at the new place."""
    family, loc = _family(case), case.scale * case.normal(case.family.size, stream=57)
    for natural in (*case.naturals, -case.naturals[1]):
        moved = family.relocate(natural, loc)
        gradient, curvature = _log_factor(case, moved)
        unit = curvature.abs().max()
        close(case, "precision after relocate", curvature, _log_factor(case, natural)[1], unit)
        zero = torch.zeros_like(gradient)
        close(case, "gradient at the new mean", gradient + curvature @ loc, zero, unit * loc.abs().max())
    for natural in case.naturals:
        spread = family.variance(natural).sqrt()
        found = family.location(family.relocate(natural, loc))
        close(case, "location after relocate", found, loc, spread + loc.abs())


LAWS = (
    precision_is_curvature,
    moments,
    draws_from_noise,
    free_coordinates,
    derivative_of_draws,
    negation_is_improper,
    predictor_variances,
    quadratics,
    relocation,
)
