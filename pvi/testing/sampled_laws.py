"""Laws that tie a family to its own draws, each within five standard errors."""

import torch
from torch import Tensor

from pvi.families import Product, cross_entropy, entropy, kl, log_prob
from pvi.testing.case import Case, close, continuous_entries, estimates, hessian, size_of

GROUPS = 96


def sampled_statistics(case: Case) -> None:
    """The mean of T over draws is μ: centred members (whose squares are skewed) and far ones."""
    for k, natural in enumerate(case.naturals):
        mean = case.family.mean_parameters(natural)
        estimates(case, "E[T] = μ", case.family.statistics(case.draws(natural, k)), mean, size_of(mean[None]))


def sampled_moments(case: Case) -> None:
    """``moments`` are the mean and the variance of the draws."""
    for k, natural in enumerate(case.naturals):
        mean, variance = case.family.moments(natural)
        x = case.draws(natural, 70 + k)
        estimates(case, "E[x]", x, mean, mean.abs() + variance.sqrt())
        estimates(case, "Var[x]", (x - mean).square(), variance, mean.square() + variance)


def fisher(case: Case) -> None:
    """The covariance of T over draws is ∇²A."""
    for k, natural in enumerate(case.naturals):
        statistics = case.family.statistics(case.draws(natural, 10 + k))
        centred = statistics - case.family.mean_parameters(natural)
        second = hessian(case.family.log_partition, natural)
        deviation = second.diagonal().sqrt()
        products = (centred / deviation)[:, :, None] * (centred / deviation)[:, None, :]
        estimates(case, "Cov[T] = ∇²A", products, second / (deviation[:, None] * deviation))


def entropies(case: Case) -> None:
    """Entropy, cross-entropy (improper factors too) and KL equal their Monte Carlo estimates."""
    family = case.family
    for k, (q, p) in enumerate(zip(case.naturals, case.naturals.roll(1, 0), strict=True)):
        x = case.draws(q, 20 + k)
        log_q, log_p = log_prob(family, q, x), log_prob(family, p, x)
        size = 1 + family.log_partition(q).abs() + family.log_partition(p).abs()
        estimates(case, "H[q] = -E[log q]", -log_q, entropy(family, q), size)
        estimates(case, "KL(q, p) = E[log q - log p]", log_q - log_p, kl(family, q, p), size)
        for factor in (p, -0.5 * p, p - 2 * q):
            values = -(factor * family.statistics(x)).sum(-1)
            estimates(case, "-E[log t]", values, cross_entropy(family, q, factor), size)


def draws_repeat(case: Case) -> None:
    """The same generator gives the same draws, another one others; the global random state is not touched."""
    family, natural = case.family, case.naturals[1]
    before = torch.get_rng_state()
    first, again = (family.sample(natural, (7, 2), case.generator(30)) for _ in range(2))
    other = family.sample(natural, (7, 2), case.generator(31))
    assert torch.equal(before, torch.get_rng_state()), "sample(..., generator) must leave the global random state alone"
    assert first.shape == (7, 2, family.size), f"sample shape {tuple(first.shape)}"
    assert torch.equal(first, again), "the same generator must give the same draws"
    assert not torch.equal(first, other), "another generator must give other draws"
    batch = family.sample(case.naturals, (7, 2), case.generator(30))
    assert batch.shape == (7, 2, len(case.naturals), family.size), f"sample shape of a batch {tuple(batch.shape)}"


def batched_draws(case: Case) -> None:
    """Draws of a batch follow every member's law, plain and under ``torch.func.vmap``."""
    family, naturals = case.family, case.naturals
    mean = family.mean_parameters(naturals)
    statistics = family.statistics(family.sample(naturals, (2_000,), case.generator(32)))
    estimates(case, "E[T] = μ over a batch", statistics, mean, size_of(mean))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        sample = torch.func.vmap(lambda natural: family.sample(natural, (2_000,)), randomness="different")
        x = sample(naturals)
    estimates(case, "E[T] = μ under vmap", family.statistics(x).transpose(0, 1), mean, size_of(mean))


def pathwise_gradients(case: Case) -> None:
    """Draws carry their derivative in η: E[∇f(x)·∂x/∂η] = ∂E[f]/∂η.

    For f = T the right side is ∇²A; for a bounded f outside the family it is Cov(f, T). Discrete members of a product
    take no part.
    """
    family, natural = case.family, case.naturals[1].double()
    fisher, mean = hessian(family.log_partition, natural), family.mean_parameters(natural)
    deviation = fisher.diagonal().sqrt()
    for k, weights in enumerate(case.normal(2, family.num_natural, stream=35).double() * continuous_entries(family)):
        linear: list[Tensor] = []
        bounded: list[Tensor] = []
        for group in range(GROUPS):
            leaf = natural.clone().requires_grad_()
            x = family.sample(leaf, (75,), case.generator(100 + GROUPS * k + group))
            statistics = (family.statistics(x) - mean) / deviation
            values = torch.cos(statistics @ weights + k)
            score = (values[:, None] * statistics).mean(0).detach()
            for function, found in ((statistics @ weights, linear), (values, bounded)):
                (gradient,) = torch.autograd.grad(function.mean(), leaf, retain_graph=True)
                found.append(gradient / deviation)
            bounded[-1] -= score
        expected = (fisher / (deviation[:, None] * deviation)) @ weights
        estimates(case, "∂E[T]/∂η by draws = ∇²A", torch.stack(linear), expected)
        estimates(case, "∂E[f]/∂η by draws = Cov(f, T)", torch.stack(bounded), torch.zeros_like(expected))


def marginals(case: Case) -> None:
    """``marginal`` is the law of the cut draws; over everything it is the law itself.

    A piece that has no law in the library is refused with ``ValueError``; single coordinates never are.
    """
    family, natural = case.family, case.naturals[1]
    x = case.draws(natural, 40)
    for start in range(family.size):
        for stop in range(start + 1, family.size + 1):
            try:
                smaller, part = family.marginal(natural, start, stop)
            except ValueError as error:
                all_of_it = start == 0 and stop == family.size and not isinstance(family, Product)
                if all_of_it or stop - start == 1:
                    raise AssertionError(f"marginal({start}, {stop}) must not be refused") from error
                continue
            assert smaller.size == stop - start, f"marginal({start}, {stop}) has size {smaller.size}"
            assert part.shape == (smaller.num_natural,), f"marginal({start}, {stop}): η has shape {tuple(part.shape)}"
            mean = smaller.mean_parameters(part)
            cut = smaller.statistics(x[:, start:stop])
            estimates(case, f"marginal({start}, {stop})", cut, mean, size_of(mean[None]))
    if not isinstance(family, Product):
        whole, same = family.marginal(natural, 0, family.size)
        expected = log_prob(family, natural, x[:20])
        close(case, "marginal of everything", log_prob(whole, same, x[:20]), expected, 1 + expected.abs().max())


LAWS = (
    sampled_statistics,
    sampled_moments,
    fisher,
    entropies,
    draws_repeat,
    batched_draws,
    marginals,
)
CONTINUOUS_LAWS = (pathwise_gradients,)
"""Of families whose draws have derivatives, and of products with such members."""
