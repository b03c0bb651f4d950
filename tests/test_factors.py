"""The algebra of factors is a homomorphism: log(t·u) = log t + log u, improper naturals included."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.distributions import constraints

from pvi.factors import Factor, as_factor, cavity, damp, divide, is_finite, multiply, normalise, power, unit
from pvi.families import Coordinates, DiagonalGaussian, FullGaussian, Product, site_coordinates
from pvi.posterior import ImproperError, Posterior

FAMILIES = (
    DiagonalGaussian(2),
    FullGaussian(2),
    Product(("weights", "tau"), (FullGaussian(2), DiagonalGaussian(1))),
)
PRODUCT = FAMILIES[2]
COORDINATES = Coordinates(
    (site_coordinates("weights", (2,), constraints.real), site_coordinates("tau", (), constraints.positive))
)
NUMBERS = st.floats(-20, 20, allow_subnormal=False)
FEW = settings(max_examples=60, deadline=None, derandomize=True)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def factors(draw, count=1, families=FAMILIES):
    """``count`` factors of one family with any natural parameters, and a point."""
    family = draw(st.sampled_from(families))
    found = [
        Factor(
            family,
            tensor(draw(st.lists(NUMBERS, min_size=family.num_natural, max_size=family.num_natural))),
            tensor(draw(NUMBERS)),
        )
        for _ in range(count)
    ]
    return (*found, tensor(draw(st.lists(st.floats(-3, 3), min_size=family.size, max_size=family.size))))


@st.composite
def posteriors(draw):
    """Proper ones, from unconstrained parameters."""
    values = st.lists(st.floats(-2, 2), min_size=PRODUCT.num_free, max_size=PRODUCT.num_free)
    return Posterior(PRODUCT, PRODUCT.natural_from_free(tensor(draw(values))), COORDINATES)


def same(first, second, rtol=1e-9):
    torch.testing.assert_close(first.natural, second.natural, rtol=rtol, atol=1e-9)
    torch.testing.assert_close(first.log_scale, second.log_scale, rtol=rtol, atol=1e-9)


@FEW
@given(factors(2))
def test_products_and_quotients_of_values(case):
    first, second, x = case
    torch.testing.assert_close(multiply(first, second).log_value(x), first.log_value(x) + second.log_value(x))
    torch.testing.assert_close(divide(first, second).log_value(x), first.log_value(x) - second.log_value(x))
    same(divide(multiply(first, second), second), first)
    same(multiply(first, second), multiply(second, first))


@FEW
@given(factors(3))
def test_multiplication_is_associative(case):
    first, second, third, _ = case
    same(multiply(multiply(first, second), third), multiply(first, multiply(second, third)))


@FEW
@given(factors(1), st.floats(-3, 3), st.floats(-3, 3))
def test_powers(case, a, b):
    factor, x = case
    torch.testing.assert_close(power(factor, a).log_value(x), a * factor.log_value(x))
    same(power(power(factor, a), b), power(factor, a * b))
    same(multiply(power(factor, a), power(factor, b)), power(factor, a + b))
    same(power(factor, 1.0), factor)
    same(power(factor, 0.0), unit(factor.family, factor.natural))
    same(multiply(factor, unit(factor.family, factor.natural)), factor)


@FEW
@given(factors(2), st.floats(0.01, 1.0))
def test_damping_is_a_convex_combination(case, damping):
    old, new, x = case
    mixed = damp(old, new, damping)
    torch.testing.assert_close(mixed.natural, (1 - damping) * old.natural + damping * new.natural)
    torch.testing.assert_close(mixed.log_value(x), (1 - damping) * old.log_value(x) + damping * new.log_value(x))
    same(damp(old, new, 1.0), new)
    same(damp(old, old, damping), old)


@pytest.mark.parametrize("damping", [0.0, -0.1, 1.5, math.nan])
def test_damping_outside_its_range_is_refused(damping):
    factor = unit(PRODUCT, tensor(0.0))
    with pytest.raises(ValueError, match=r"damping must lie in \(0, 1\]"):
        damp(factor, factor, damping)


@FEW
@given(posteriors(), factors(1, families=(PRODUCT,)))
def test_cavity_times_factor_is_the_posterior(posterior, case):
    factor, x = case
    held = cavity(posterior, factor)
    same(multiply(held, factor), as_factor(posterior))
    # q's density over the unconstrained x has no Jacobian in it.
    values = COORDINATES.constrain(x)
    log_q = posterior.log_prob(values) + COORDINATES.log_abs_det_jacobian(x)
    torch.testing.assert_close(held.log_value(x) + factor.log_value(x), log_q, rtol=1e-8, atol=1e-8)


@FEW
@given(posteriors(), st.floats(-5, 5))
def test_normalise_returns_the_evidence(posterior, log_scale):
    factor = Factor(PRODUCT, posterior.natural, tensor(log_scale))
    again, log_normaliser = normalise(factor, COORDINATES)
    assert torch.equal(again.natural, posterior.natural)
    # exp(factor) = exp(log_normaliser) q, everywhere.
    x = torch.linspace(-1, 1, PRODUCT.size, dtype=torch.float64)
    torch.testing.assert_close(factor.log_value(x), log_normaliser + as_factor(posterior).log_value(x))
    torch.testing.assert_close(normalise(as_factor(posterior), COORDINATES)[1], tensor(0.0), rtol=0, atol=1e-9)


def test_normaliser_against_quadrature():
    family = Product(("z",), (DiagonalGaussian(1),))
    coordinates = Coordinates((site_coordinates("z", (), constraints.real),))
    factor = Factor(family, tensor([1.3, -0.7]), tensor(0.4))
    grid = torch.linspace(-15, 15, 20_001, dtype=torch.float64)
    integral = torch.trapezoid(factor.log_value(grid[:, None]).exp(), grid)
    torch.testing.assert_close(normalise(factor, coordinates)[1], integral.log())


def test_improper_factors_are_legal_until_normalised():
    bad = power(as_factor(proper()), -1.0)
    assert not bad.is_proper
    assert math.isfinite(bad.log_value(torch.zeros(3, dtype=torch.float64)).item())
    with pytest.raises(ImproperError, match=r"natural parameters of weights, tau are improper"):
        normalise(bad, COORDINATES)
    assert multiply(bad, power(as_factor(proper()), 3.0)).is_proper


def proper():
    return Posterior(PRODUCT, PRODUCT.natural_from_free(torch.zeros(PRODUCT.num_free).double()), COORDINATES)


def test_only_the_improper_site_is_named():
    natural = proper().natural.clone()
    natural[-1] = 0.1  # tau's precision becomes negative
    with pytest.raises(ImproperError, match=r"natural parameters of tau are improper"):
        Posterior(PRODUCT, natural, COORDINATES)
    natural[-1] = math.nan
    with pytest.raises(ImproperError, match=r"natural parameters of tau are improper"):
        normalise(Factor(PRODUCT, natural, tensor(0.0)), COORDINATES)


def test_a_posterior_is_no_factor_and_a_factor_no_posterior():
    q, t = proper(), unit(PRODUCT, tensor(0.0))
    for operation in (multiply, divide):
        for pair in ((q, t), (t, q), (q, q)):
            with pytest.raises(TypeError, match="expected a Factor, got Posterior; see as_factor and cavity"):
                operation(*pair)
    with pytest.raises(TypeError, match="expected a Factor, got Posterior"):
        power(q, 0.5)
    with pytest.raises(TypeError, match="expected a Factor, got Posterior"):
        damp(q, t, 0.5)
    with pytest.raises(TypeError, match="expected a Factor, got Posterior"):
        normalise(q, COORDINATES)
    with pytest.raises(TypeError, match="expected a Factor, got Posterior"):
        cavity(q, q)


def test_a_factor_is_no_posterior():
    t = Factor(PRODUCT, proper().natural, tensor(0.0))
    for operation in (lambda: cavity(t, t), lambda: as_factor(t)):
        with pytest.raises(TypeError, match="expected a Posterior, got Factor"):
            operation()


def test_factors_of_two_families_do_not_mix():
    first, second = unit(DiagonalGaussian(2), tensor(0.0)), unit(FullGaussian(2), tensor(0.0))
    with pytest.raises(ValueError, match="factors of two families"):
        multiply(first, second)


def test_a_posterior_needs_sites():
    with pytest.raises(TypeError, match="needs a Product family, got DiagonalGaussian"):
        normalise(Factor(DiagonalGaussian(1), tensor([0.0, -0.5]), tensor(0.0)), COORDINATES)


def test_finiteness():
    factor = unit(PRODUCT, tensor(0.0))
    assert is_finite(factor)
    assert not is_finite(Factor(PRODUCT, factor.natural, tensor(math.inf)))
    assert not is_finite(Factor(PRODUCT, factor.natural + math.nan, factor.log_scale))


def test_the_unit_keeps_dtype():
    assert unit(PRODUCT, torch.zeros(1, dtype=torch.float32)).natural.dtype == torch.float32
