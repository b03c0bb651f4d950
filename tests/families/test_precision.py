"""Means and precisions of mean-field products and of one full Gaussian: there and back, and against torch."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from pvi.families import Bernoulli, DiagonalGaussian, FullGaussian, Product
from pvi.families.mean_field import natural_from_moments
from pvi.families.precision import is_full, natural_from_precision, precision, product_with

DOUBLE = torch.float64
SEVERAL = Product(("a", "b", "c"), (DiagonalGaussian(2), DiagonalGaussian(1), DiagonalGaussian(3)))
ONE = Product(("a",), (DiagonalGaussian(6),))
FULL = Product(("a+b",), (FullGaussian(6),))


def example(family, seed=0):
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(6, generator=generator, dtype=DOUBLE)
    if is_full(family):
        root = torch.randn(6, 6, generator=generator, dtype=DOUBLE)
        return loc, root @ root.T + 0.1 * torch.eye(6, dtype=DOUBLE)
    return loc, torch.rand(6, generator=generator, dtype=DOUBLE) + 0.1


@pytest.mark.parametrize("family", [SEVERAL, ONE, FULL], ids=["several", "one", "full"])
def test_there_and_back(family):
    loc, own = example(family)
    natural = natural_from_precision(family, loc, own)
    assert natural.shape == (family.num_natural,)
    torch.testing.assert_close(precision(family, natural), own, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(family.location(natural), loc, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(family.relocate(torch.zeros_like(natural), loc), torch.zeros_like(natural))


@pytest.mark.parametrize("family", [SEVERAL, ONE, FULL], ids=["several", "one", "full"])
def test_densities(family):
    """exp(η·T(x) - A(η)) is torch's Gaussian, constants included."""
    loc, own = example(family)
    natural = natural_from_precision(family, loc, own)
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    found = (natural * family.statistics(x)).sum(-1) - family.log_partition(natural)
    normal = MultivariateNormal(loc, precision_matrix=own) if is_full(family) else Normal(loc, own**-0.5)
    expected = normal.log_prob(x) if is_full(family) else normal.log_prob(x).sum(-1)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_sites_stay_in_order():
    """Coordinates are the sites' one after the other, whatever sites there are."""
    loc, own = example(SEVERAL)
    natural = natural_from_precision(SEVERAL, loc, own)
    torch.testing.assert_close(natural, natural_from_moments(SEVERAL, loc, own**-0.5))
    first = natural_from_precision(Product(("a",), (DiagonalGaussian(2),)), loc[:2], own[:2])
    torch.testing.assert_close(SEVERAL.split(natural)["a"], first)


@pytest.mark.parametrize("family", [SEVERAL, FULL], ids=["several", "full"])
def test_linear_and_improper(family):
    (loc, own), (_, other) = example(family), example(family, 1)
    first, second = natural_from_precision(family, loc, own), natural_from_precision(family, loc, other)
    torch.testing.assert_close(precision(family, first - 3 * second), own - 3 * other, rtol=1e-12, atol=1e-12)
    assert not family.is_proper(first - 3 * second)
    torch.testing.assert_close(natural_from_precision(family, loc, own - 3 * other), first - 3 * second)


def test_products_with_vectors():
    (loc, own), (_, matrix) = example(SEVERAL), example(FULL)
    torch.testing.assert_close(product_with(own, loc), torch.diag(own) @ loc)
    torch.testing.assert_close(product_with(matrix, loc), matrix @ loc)


@pytest.mark.parametrize(
    "family",
    [
        Product(("a", "b"), (FullGaussian(3), DiagonalGaussian(3))),
        Product(("a", "b"), (FullGaussian(3), FullGaussian(3))),
        Product(("a", "b"), (Bernoulli(3), DiagonalGaussian(3))),
    ],
    ids=str,
)
def test_other_families_have_none(family):
    assert not is_full(family)
    with pytest.raises(TypeError, match="neither mean field nor one full Gaussian"):
        precision(family, torch.zeros(family.num_natural))
    with pytest.raises(TypeError, match="neither mean field nor one full Gaussian"):
        natural_from_precision(family, torch.zeros(6), torch.eye(6))
