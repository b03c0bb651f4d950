"""Laws that hold up to rounding."""

import torch
from torch import Tensor

from pvi.families import Product, entropy, kl, log_prob
from pvi.testing.case import Case, close, hessian, size_of


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


def natural_gradients_differentiate(case: Case) -> None:
    """∇²A(η) times ``natural_gradient(η, g)`` is g for every η: its derivative in η is zero."""
    family, natural = case.family, case.naturals[1].double()
    second = hessian(family.log_partition, natural)
    deviation = second.diagonal().sqrt()
    gradient = deviation * case.normal(family.num_natural, stream=64).double()
    solved = family.natural_gradient(natural, gradient)
    found = torch.func.jacrev(lambda n: hessian(family.log_partition, n) @ family.natural_gradient(n, gradient))(
        natural
    )
    # What cancels: the derivative of the first of the two.
    parts = torch.func.jacrev(lambda n: hessian(family.log_partition, n) @ solved)(natural)
    unit = deviation[:, None] * deviation
    error = (found / unit).abs().max() / (1 + (parts / unit).abs().max())
    assert bool(error < 1e-8), f"the derivative of natural_gradient in η is off by {error.item():.2g} of its size"


def product_is_sum(case: Case) -> None:
    """log q_1 + log q_2 is (η_1 + η_2)·T up to a constant, with the densities of ``distribution``; proper or not."""
    family, (_, first, second, _) = case.family, case.naturals
    x = family.sample(first, (20,), case.generator(2))
    total = family.distribution(first).log_prob(x) + family.distribution(second).log_prob(x)
    difference = total - ((first + second) * family.statistics(x)).sum(-1)
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
    scalar = [()] if family.size == 1 else []
    shapes: list[tuple[int, ...]] = [(family.size,), (1, family.size), (family.size, 1), *scalar]
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
        unit = torch.maximum(case.unit, natural.abs().max())
        close(case, "recover", family.recover(log_density, natural), natural, unit)


LAWS = (
    round_trips,
    gradient_of_log_partition,
    hessian_of_log_partition,
    natural_gradients,
    natural_gradients_differentiate,
    product_is_sum,
    agrees_with_torch,
    distribution_shapes,
    divergence_is_zero_only_at_itself,
    free_scale_is_positive,
    recovers_itself,
)
