"""Monte Carlo estimates of E_q[log p(y_m | θ)] and of its gradient in the mean parameters of q."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, Product, log_prob
from pvi.families.discrete import joint_values
from pvi.families.kinds import is_discrete, is_gaussian
from pvi.objectives import LocalProblem
from pvi.solvers.expected import Expected, likelihood_slopes, natural_gradient


def sampled_expectation(
    problem: LocalProblem,
    natural: Tensor,
    baseline: Tensor,
    num_draws: int,
    rows: Tensor | None,
    generator: torch.Generator,
) -> Expected:
    """An unbiased estimate from ``num_draws`` draws (Gaussian ones come in mirrored pairs), ``rows`` ``[b]`` for all.

    Continuous members by pathwise derivatives, discrete ones summed over all their values. What is averaged is
    log p - λ·T for the factor λ = ``baseline``, whose own expectation is known: the noise vanishes as λ comes to stand
    for the likelihood. Raises ``ValueError`` where the discrete members have too many values.
    """
    family = problem.approximation.family
    draw, split = _drawing(family, num_draws, natural, generator), _split(problem, family, natural)
    with torch.no_grad():
        x = draw(natural)
    number = len(split.values)
    points = x.repeat(number, 1)
    points[:, split.mask] = split.values.repeat_interleave(len(x), 0)
    values, slopes = likelihood_slopes(problem, points, rows)
    known_slopes, known = torch.func.vmap(torch.func.grad_and_value(lambda x: (baseline * family.statistics(x)).sum()))(
        points
    )
    residuals = (values - known).reshape(number, -1)
    slopes = torch.where(split.mask, 0.0, slopes - known_slopes).reshape(number, len(x), -1)

    def estimate(natural: Tensor) -> Tensor:
        parts, log_weight = family.split(natural), natural.new_zeros(number)
        for name, member, piece in split.members:
            log_weight = log_weight + log_prob(member, parts[name], piece)
        return (log_weight.exp() * (residuals + (slopes * (draw(natural) - x)).sum(-1)).mean(-1)).sum()

    found = natural_gradient(problem, natural, estimate)
    value = found.value + (baseline * family.mean_parameters(natural)).sum()
    return Expected(value, found.gradient + baseline)


def _drawing(family: Product, num_draws: int, like: Tensor, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Draws ``[num_draws, size]`` as a function of η, the same ones at every call."""
    if is_gaussian(family):
        shape = (num_draws // 2, family.size)
        half = torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)
        noise = torch.cat([half, -half])
        return lambda natural: family.from_noise(natural, noise)
    if is_discrete(family):
        num_draws = 1
    state = generator.get_state()

    def again(natural: Tensor) -> Tensor:
        generator.set_state(state)
        return family.sample(natural, (num_draws,), generator)

    return again


class _Split(NamedTuple):
    """A product's discrete members, each with its piece of all joint values ``[n, ...]``; which of x are theirs."""

    members: tuple[tuple[str, Family, Tensor], ...]
    values: Tensor
    mask: Tensor


def _split(problem: LocalProblem, family: Product, like: Tensor) -> _Split:
    named = list(zip(family.names, family.members, strict=True))
    members = [(name, member) for name, member in named if is_discrete(member)]
    mask = torch.tensor([is_discrete(member) for _, member in named for _ in range(member.size)], device=like.device)
    if not members:
        return _Split((), like.new_zeros(1, 0), mask)
    try:
        values = joint_values([member for _, member in members], like)
    except ValueError as error:
        raise ValueError(
            f"client {problem.client!r}: sites {[name for name, _ in members]} cannot be summed over: {error}; draws "
            "of discrete sites have no derivative"
        ) from error
    pieces = values.split([member.size for _, member in members], -1)
    named_pieces = ((name, member, piece) for (name, member), piece in zip(members, pieces, strict=True))
    return _Split(tuple(named_pieces), values, mask)
