"""Laws that hold up to rounding."""

import math

import torch
from torch import Tensor

from pvi.families import Product, entropy, kl, largest_step, log_prob
from pvi.testing.case import Case, close, hessian, is_gaussian, size_of


def sizes_and_dtypes(case: Case) -> None:
    """Every function keeps the dtype and the leading axes, and has the length that the family declares."""
    family, naturals = case.family, case.naturals
    lead = naturals.shape[:-1]
    x = family.sample(naturals, (), case.generator())
    found = {
        "sample": (x, (*lead, family.size)),
        "statistics": (family.statistics(x), (*lead, family.num_natural)),
        "log_partition": (family.log_partition(naturals), lead),
        "mean_parameters": (family.mean_parameters(naturals), (*lead, family.num_natural)),
        "free": (family.free(naturals), (*lead, family.num_free)),
        "natural_from_free": (family.natural_from_free(family.free(naturals)), (*lead, family.num_natural)),
        "free_scale": (family.free_scale(naturals[1]), (family.num_free,)),
        "natural_gradient": (family.natural_gradient(naturals, case.unit * naturals), (*lead, family.num_natural)),
        "moments (mean)": (family.moments(naturals)[0], (*lead, family.size)),
        "moments (variance)": (family.moments(naturals)[1], (*lead, family.size)),
        "interior": (family.interior(naturals), (family.size,)),
        "statistics of interior": (family.statistics(family.interior(naturals)), (family.num_natural,)),
    }
    for name, (value, shape) in found.items():
        assert value.shape == shape, f"{name} has shape {tuple(value.shape)}, expected {tuple(shape)}"
        assert value.dtype == naturals.dtype, f"{name} has {value.dtype}, expected {naturals.dtype}"
        assert bool(torch.isfinite(value).all()), f"{name} is not finite"
    assert family.is_proper(naturals).dtype == torch.bool, "is_proper must be boolean"
    assert family.is_proper(naturals).shape == lead, "is_proper keeps the leading axes"


def round_trips(case: Case) -> None:
    """Standard, mean and unconstrained parameters lead back to η."""
    family, naturals, unit = case.family, case.naturals, case.unit
    back = family.natural_from_standard(**family.standard(naturals))
    close(case, "natural_from_standard(standard(η))", back, naturals, unit)
    close(case, "natural_from_mean(μ(η))", family.natural_from_mean(family.mean_parameters(naturals)), naturals, unit)
    free = family.free(naturals)
    close(case, "natural_from_free(free(η))", family.natural_from_free(free), naturals, unit)
    any_free = 0.5 * case.normal(3, family.num_free, stream=1)
    back = family.free(family.natural_from_free(any_free))
    close(case, "free(natural_from_free(v))", back, any_free)


def gradient_of_log_partition(case: Case) -> None:
    """∇A(η) = μ(η)."""
    gradient = torch.func.vmap(torch.func.grad(case.family.log_partition))(case.naturals)
    mean = case.family.mean_parameters(case.naturals)
    close(case, "∇A = μ", gradient, mean, size_of(mean))


def hessian_of_log_partition(case: Case) -> None:
    """∇²A(η) = ∂μ/∂η, symmetric and positive definite."""
    for natural in case.naturals:
        second = hessian(case.family.log_partition, natural)
        jacobian = torch.func.jacrev(case.family.mean_parameters)(natural)
        deviation = second.diagonal().clamp(min=0).sqrt()
        unit = deviation[:, None] * deviation
        close(case, "∇²A = ∂μ/∂η", jacobian, second, unit)
        close(case, "∇²A is symmetric", second, second.mT, unit)
        smallest = torch.linalg.eigvalsh((second / unit).double())[0].item()
        assert smallest > 0, f"∇²A is not positive definite: eigenvalue {smallest:.2g} of its correlation matrix"


def natural_gradients(case: Case) -> None:
    """``natural_gradient`` solves with ∇²A, the gradient being drawn with covariance ∇²A; batched and in ``vmap``."""
    family, naturals = case.family, case.naturals
    gradients, expected, units = [], [], []
    for k, natural in enumerate(naturals):
        second = hessian(family.log_partition, natural.double())
        deviation = second.diagonal().sqrt()
        correlation = second / (deviation[:, None] * deviation)
        root = torch.linalg.cholesky(correlation)
        noise = case.normal(family.num_natural, stream=60 + k).double()
        # Rounded first, so that the solution is that of the very gradient which the family sees.
        gradient = (deviation * (root @ noise)).to(natural)
        solved = torch.cholesky_solve((gradient.double() / deviation)[:, None], root)[:, 0]
        gradients.append(gradient)
        expected.append((solved / deviation).to(natural))
        units.append((torch.cholesky_inverse(root).diagonal().sqrt() / deviation).to(natural))
    gradient, wanted, unit = torch.stack(gradients), torch.stack(expected), torch.stack(units)
    close(case, "natural_gradient", family.natural_gradient(naturals, gradient), wanted, unit)
    mapped = torch.func.vmap(family.natural_gradient)(naturals, gradient)
    close(case, "vmap(natural_gradient)", mapped, wanted, unit)
    shaped = family.natural_gradient(naturals.reshape(2, 2, -1), gradient.reshape(2, 2, -1))
    close(case, "natural_gradient with two axes", shaped.reshape(wanted.shape), wanted, unit)


def product_is_sum(case: Case) -> None:
    """log q_1 + log q_2 - log q_12 is constant where η_12 = η_1 + η_2."""
    family, (_, first, second, _) = case.family, case.naturals
    x = family.sample(first, (20,), case.generator(2))
    total = log_prob(family, first, x) + log_prob(family, second, x)
    difference = total - log_prob(family, first + second, x)
    close(case, "product", difference, difference[:1].expand(20), 1 + total.abs().max())


def agrees_with_torch(case: Case) -> None:
    """log density, entropy and KL equal those of ``distribution(η)``, constants included."""
    family, naturals = case.family, case.naturals
    x = family.sample(naturals, (20,), case.generator(3))
    distribution = family.distribution(naturals)
    assert tuple(distribution.event_shape) == (family.size,), f"event shape {tuple(distribution.event_shape)}"
    expected = distribution.log_prob(x)
    close(case, "log_prob", log_prob(family, naturals, x), expected, 1 + expected.abs().max())
    expected = distribution.entropy()
    close(case, "entropy", entropy(family, naturals), expected, 1 + expected.abs().max())
    other = naturals.roll(1, 0)
    try:
        expected = torch.distributions.kl_divergence(distribution, family.distribution(other))
    except NotImplementedError:
        return  # nothing registered: the sampled laws have the divergence
    close(case, "kl", kl(family, naturals, other), expected, 1 + expected.abs().max())


def distribution_shapes(case: Case) -> None:
    """``distribution(η, shape)`` is the same law over reshaped events (a product has vectors only)."""
    family, natural = case.family, case.naturals[1]
    if isinstance(family, Product):
        return
    x = family.sample(natural, (5,), case.generator(4))
    expected = log_prob(family, natural, x)
    shapes = [(family.size,), (1, family.size), (family.size, 1)] + ([()] if family.size == 1 else [])
    for shape in shapes:
        distribution = family.distribution(natural, shape)
        assert tuple(distribution.event_shape) == shape, f"distribution(η, {shape}): event {distribution.event_shape}"
        found = distribution.log_prob(x.reshape((5, *shape)))
        close(case, f"distribution(η, {shape}).log_prob", found, expected, 1 + expected.abs().max())


def divergence_is_zero_only_at_itself(case: Case) -> None:
    """KL(q, q) = 0 and KL(q, p) > 0."""
    family, naturals = case.family, case.naturals
    zero = torch.zeros(len(naturals), dtype=naturals.dtype)
    close(case, "KL(q, q)", kl(family, naturals, naturals), zero, 1 + family.log_partition(naturals).abs().max())
    assert bool((kl(family, naturals, naturals.roll(1, 0)) > 0).all()), "KL(q, p) must be positive for q ≠ p"


def propriety_at_the_edge(case: Case) -> None:
    """Just inside the boundary η is proper with finite A, just outside improper with infinite A."""
    family, naturals = case.family, case.naturals
    edge = math.sqrt(torch.finfo(naturals.dtype).eps)
    deltas = torch.cat([-2 * naturals, case.unit * case.normal(16, family.num_natural, stream=5)])
    naturals = torch.cat([naturals, naturals.repeat(4, 1)])
    assert bool(family.is_proper(naturals).all()), "natural_from_free must give proper parameters"
    boundary = family.boundary(naturals, deltas)
    finite = torch.isfinite(boundary)
    assert bool((boundary > 0).all()), "the boundary lies ahead of a proper η"
    assert bool(finite[: len(case.naturals)].all()), "-2η must have a boundary: -η is improper"
    inside = torch.where(finite, boundary * (1 - edge), torch.full_like(boundary, 1e3))
    outside = torch.where(finite, boundary * (1 + edge), boundary)
    for fraction in (0 * inside, 0.5 * inside, inside):
        reached = naturals + fraction[:, None] * deltas
        assert bool(family.is_proper(reached).all()), "improper before the boundary"
        assert bool(torch.isfinite(family.log_partition(reached)).all()), "A must be finite where η is proper"
    beyond = (naturals + outside[:, None] * deltas)[finite]
    assert not bool(family.is_proper(beyond).any()), "proper beyond the boundary"
    assert bool((family.log_partition(beyond) == math.inf).all()), "A must be infinite where η is improper"
    fraction = largest_step(family, naturals, deltas)
    whole = boundary > 1
    assert bool(family.is_proper(naturals + fraction[:, None] * deltas).all()), "largest_step left the family"
    assert bool((fraction[whole] == 1).all()), "a proper end needs no shortening"
    assert bool((fraction[~whole] < boundary[~whole]).all()), "largest_step must stop short of the boundary"
    for bad in (math.nan, math.inf, -math.inf):
        broken = case.naturals[1].clone()
        broken[0] = bad
        assert not bool(family.is_proper(broken)), f"a parameter that is {bad} cannot be proper"


def batches_are_loops(case: Case) -> None:
    """Leading axes give what a loop over them gives."""
    family, naturals = case.family, case.naturals
    grid = naturals.reshape(2, 2, -1)
    delta = -2 * naturals.roll(1, 0)
    mean, free = family.mean_parameters(naturals), family.free(naturals)
    x = family.sample(naturals, (), case.generator(6))
    functions = {
        "log_partition": (family.log_partition, naturals),
        "mean_parameters": (family.mean_parameters, naturals),
        "natural_from_mean": (family.natural_from_mean, mean),
        "free": (family.free, naturals),
        "natural_from_free": (family.natural_from_free, free),
        "statistics": (family.statistics, x),
    }
    for name, (function, argument) in functions.items():
        loop = torch.stack([function(row) for row in argument])
        unit = size_of(loop.reshape(len(loop), -1)).reshape(loop.shape[1:])
        close(case, name, function(argument), loop, unit)
        shaped = argument.reshape(2, 2, -1)
        close(case, f"{name} with two axes", function(shaped).reshape(loop.shape), loop, unit)
    assert torch.equal(family.is_proper(grid), torch.ones(2, 2, dtype=torch.bool)), "is_proper with two axes"
    loop = torch.stack([family.boundary(*pair) for pair in zip(naturals, delta, strict=True)])
    close(case, "boundary", family.boundary(naturals, delta), loop, loop.abs().max())
    for name, value in family.standard(naturals).items():
        loop = torch.stack([family.standard(row)[name] for row in naturals])
        close(case, f"standard {name!r}", value, loop, loop.abs().max())


def vectorises(case: Case) -> None:
    """``torch.func.vmap`` over a factor's functions gives what a loop gives."""
    family, naturals = case.family, case.naturals
    vmap = torch.func.vmap
    close(case, "vmap(log_partition)", vmap(family.log_partition)(naturals), family.log_partition(naturals))
    mean = family.mean_parameters(naturals)
    close(case, "vmap(mean_parameters)", vmap(family.mean_parameters)(naturals), mean, size_of(mean))
    found = vmap(family.natural_from_free)(family.free(naturals))
    close(case, "vmap(natural_from_free)", found, naturals, case.unit)
    scale = torch.stack([family.free_scale(row) for row in naturals])
    close(case, "vmap(free_scale)", vmap(family.free_scale)(naturals), scale, size_of(scale))


def free_scale_is_positive(case: Case) -> None:
    """Step sizes are positive and finite."""
    for natural in case.naturals:
        scale = case.family.free_scale(natural)
        assert bool((scale > 0).all()), "free_scale must be positive"
        assert bool(torch.isfinite(scale).all()), "free_scale must be finite"


def recovers_itself(case: Case) -> None:
    """``recover`` finds η from a log density that is known up to a constant."""
    family = case.family
    for natural in case.naturals:

        def log_density(x: Tensor, natural: Tensor = natural) -> Tensor:
            return (natural * family.statistics(x)).sum() + 3.0

        # Gradients are taken one unit of x apart: rounding is relative to the largest term there.
        largest = natural.abs().max() if is_gaussian(family) else case.unit
        close(case, "recover", family.recover(log_density, natural), natural, torch.maximum(case.unit, largest))


LAWS = (
    sizes_and_dtypes,
    round_trips,
    gradient_of_log_partition,
    hessian_of_log_partition,
    natural_gradients,
    product_is_sum,
    agrees_with_torch,
    distribution_shapes,
    divergence_is_zero_only_at_itself,
    propriety_at_the_edge,
    batches_are_loops,
    vectorises,
    free_scale_is_positive,
    recovers_itself,
)
