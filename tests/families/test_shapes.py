"""Shapes as the docstrings promise them, checked by jaxtyping at run time."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Bool, Float, jaxtyped
from torch import Tensor

from pvi.families import DiagonalGaussian, FullGaussian, GaussianFamily, Product

MEMBERS = (DiagonalGaussian(2), FullGaussian(3), DiagonalGaussian(1))
FAMILIES = [*MEMBERS, Product(("a", "b", "c"), MEMBERS)]


@jaxtyped(typechecker=beartype)
def draws(family: GaussianFamily, natural: Float[Tensor, "*batch natural"]) -> Float[Tensor, "7 *batch size"]:
    return family.sample(natural, (7,))


@jaxtyped(typechecker=beartype)
def statistics(family: GaussianFamily, x: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch natural"]:
    return family.statistics(x)


@jaxtyped(typechecker=beartype)
def mean(family: GaussianFamily, natural: Float[Tensor, "*batch natural"]) -> Float[Tensor, "*batch natural"]:
    return family.natural_from_mean(family.mean_parameters(natural))


@jaxtyped(typechecker=beartype)
def scalars(family: GaussianFamily, natural: Float[Tensor, "*batch natural"]) -> Float[Tensor, "*batch"]:
    return family.log_partition(natural) + family.boundary(natural, -natural)


@jaxtyped(typechecker=beartype)
def proper(family: GaussianFamily, natural: Float[Tensor, "*batch natural"]) -> Bool[Tensor, "*batch"]:
    return family.is_proper(natural)


@jaxtyped(typechecker=beartype)
def moments(family: GaussianFamily, natural: Float[Tensor, "*batch natural"]) -> Float[Tensor, "*batch size"]:
    return family.location(natural) + family.variance(natural)


@jaxtyped(typechecker=beartype)
def rows(
    family: GaussianFamily, natural: Float[Tensor, " natural"], design: Float[Tensor, "rows size"]
) -> Float[Tensor, " rows"]:
    return family.predictor_variance(natural, design)


@jaxtyped(typechecker=beartype)
def precision(family: GaussianFamily, natural: Float[Tensor, " natural"]) -> Float[Tensor, "size size"]:
    return family.precision_matrix(natural)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)
def test_shapes(family, batch):
    generator = torch.Generator().manual_seed(0)
    natural = family.natural_from_free(torch.randn((*batch, family.num_free), generator=generator))
    assert natural.shape == (*batch, family.num_natural)
    x = draws(family, natural)
    assert x.shape == (7, *batch, family.size)
    assert statistics(family, x).shape[-1] == family.num_natural
    mean(family, natural)
    scalars(family, natural)
    proper(family, natural)
    moments(family, natural)
    one = natural.reshape(-1, family.num_natural)[0]
    rows(family, one, torch.randn(5, family.size, generator=generator))
    assert precision(family, one).shape == (family.size, family.size)
