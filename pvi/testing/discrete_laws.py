"""Laws of families with finitely many values, by summing over all of these."""

from typing import cast

import torch

from pvi.families import DiscreteFamily, Family, entropy, kl, log_prob
from pvi.testing.case import Case, close


def all_values(case: Case) -> None:
    """``enumerate`` lists every value once, in the dtype asked for; the draws are among them."""
    family = cast(DiscreteFamily, case.family)
    values = family.enumerate(case.naturals)
    assert values.shape[1:] == (family.size,), f"enumerate has shape {tuple(values.shape)}"
    assert values.dtype == case.naturals.dtype, f"enumerate has {values.dtype}, expected {case.naturals.dtype}"
    assert family.enumerate().dtype == torch.get_default_dtype(), "enumerate() has the default dtype"
    assert len(torch.unique(values, dim=0)) == len(values), "enumerate repeats a value"
    listed = {tuple(row) for row in values.tolist()}
    drawn = {tuple(row) for row in case.draws(case.naturals[0]).tolist()}
    assert drawn <= listed, f"draws outside enumerate: {sorted(drawn - listed)[:3]}"


def sums(case: Case) -> None:
    """Σ exp(η·T - A) = 1; μ, moments, entropy and KL are the sums that define them."""
    family = cast(DiscreteFamily, case.family)
    values = family.enumerate(case.naturals)
    statistics = family.statistics(values)
    for q, p in zip(case.naturals, case.naturals.roll(1, 0), strict=True):
        log_q, log_p = log_prob(family, q, values), log_prob(family, p, values)
        probs = log_q.exp()
        close(case, "Σ q", probs.sum(), torch.ones_like(log_q[0]))
        close(case, "Σ q T", probs @ statistics, family.mean_parameters(q))
        mean, variance = family.moments(q)
        size = values.abs().max() + 1
        close(case, "Σ q x", probs @ values, mean, size)
        close(case, "Σ q (x - m)²", probs @ (values - mean).square(), variance, size.square())
        close(case, "-Σ q log q", -(probs @ log_q), entropy(family, q), 1 + log_q.abs().max())
        close(case, "Σ q log q/p", probs @ (log_q - log_p), kl(family, q, p), 1 + (log_q - log_p).abs().max())


def draws_without_derivative(case: Case) -> None:
    """Draws are detached: a gradient of zero would pass for one."""
    natural = case.naturals[1].clone().requires_grad_()
    assert not case.family.sample(natural, (3,), case.generator(36)).requires_grad, "draws must carry no gradient"


def everything_finite_is_proper(case: Case) -> None:
    """Any finite η is proper, the boundary infinitely far."""
    family: Family = case.family
    for factor in (-1e4, 0.0, 1e4):
        assert bool(family.is_proper(factor * case.naturals).all()), f"{factor:g} η must be proper"
    assert bool(torch.isinf(family.boundary(case.naturals, -2 * case.naturals)).all()), "there is no boundary"


LAWS = (
    all_values,
    sums,
    draws_without_derivative,
    everything_finite_is_proper,
)
