"""The clients' parts of the global free energy, those that need draws in batched computations."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pvi.blocks import gather, row_expectations, split
from pvi.capture import Function
from pvi.engine import Engine, Group
from pvi.families import Product
from pvi.objectives import Estimate, LocalProblem, average, client_term, is_exact, with_own_latents
from pvi.programs.linear_predictor import LinearPredictor
from pvi.programs.weighted import tensors_of
from pvi.stack import keep, kind, likelihood

MAX_NUMBERS = 2**26
"""Numbers in one batched evaluation."""
SMALL = 2**23
"""Numbers of one client's evaluation up to which the price of running its program counts more."""

Terms = Callable[[Sequence[LocalProblem], Tensor, Sequence[Tensor | None]], list[Estimate]]
"""From the clients' problems, the shared q's η and η of each q(z | θ): each client's part, in nats."""


def terms(problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]) -> list[Estimate]:
    """One client after the other; the draws are the same whenever the clients are."""
    each = enumerate(zip(problems, conditionals, strict=True))
    return [client_term(problem, natural, own, seed=index) for index, (problem, own) in each]


def many_terms(
    engine: Engine, problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]
) -> list[Estimate]:
    """What :func:`terms` gives, up to rounding.

    Quadratures and small clients whose expectations need draws are computed together.

    Raises :class:`~pvi.stack.NotVectorisable` where they cannot be.
    """
    found = _by_quadrature(engine, problems, natural, conditionals)
    chunks: list[list[int]] = [[]]
    total = 0
    for index, problem in enumerate(problems):
        if index in found:
            continue
        numbers = _numbers(problem)
        if is_exact(problem) or numbers > SMALL:
            found[index] = client_term(problem, natural, conditionals[index], seed=index)
            continue
        total += numbers
        if total > MAX_NUMBERS:
            chunks.append([])
            total = numbers
        chunks[-1].append(index)
    for chunk in chunks:
        chosen, own = [problems[index] for index in chunk], [conditionals[index] for index in chunk]
        found |= dict(zip(chunk, _chunk(engine, chosen, natural, own, chunk), strict=True))
    return [found[index] for index in range(len(problems))]


def _by_quadrature(
    engine: Engine, problems: Sequence[LocalProblem], natural: Tensor, conditionals: Sequence[Tensor | None]
) -> dict[int, Estimate]:
    """The terms of generalised linear models by position. Newton's next solve from q starts with the same rows."""
    families: dict[Product, list[int]] = {}
    for index, problem in enumerate(problems):
        if isinstance(problem.predictor, LinearPredictor):
            families.setdefault(problem.family, []).append(index)
    found: dict[int, Estimate] = {}
    for family, members in families.items():
        order, blocks = gather([problems[index] for index in members], engine)
        chosen = [members[position] for position in order]
        locals_ = torch.stack([problems[index].local(natural, conditionals[index]) for index in chosen])
        rows = row_expectations(blocks, family, split(blocks, locals_))
        values = torch.cat([block.value.sum(-1) for block in rows]).tolist()
        for index, value in zip(chosen, values, strict=True):
            likelihood = Estimate(value, 0.0)
            found[index] = with_own_latents(problems[index], natural, conditionals[index], likelihood)
    return found


def _numbers(problem: LocalProblem) -> int:
    """How many numbers an evaluation at all draws makes, roughly."""
    return problem.elbo_samples * (problem.family.size + sum(value.numel() for value in tensors_of(problem.batch)))


def _chunk(
    engine: Engine,
    problems: Sequence[LocalProblem],
    natural: Tensor,
    conditionals: Sequence[Tensor | None],
    seeds: Sequence[int],
) -> list[Estimate]:
    locals_ = [problem.local(natural, own) for problem, own in zip(problems, conditionals, strict=True)]
    found: dict[int, Estimate] = {}
    for group in engine.groups(problems, locals_):
        draws = torch.stack([_draws(problems[index], locals_[index], seeds[index]) for index in group.members])
        for index, values in zip(group.members, _evaluate(engine, group, draws), strict=True):
            found[index] = with_own_latents(problems[index], natural, conditionals[index], average(values))
    return [found[index] for index in range(len(problems))]


def _draws(problem: LocalProblem, natural: Tensor, seed: int) -> Tensor:
    generator = torch.Generator(device=natural.device).manual_seed(seed)
    return problem.family.sample(natural, (problem.elbo_samples,), generator)


def _evaluate(engine: Engine, group: Group, draws: Tensor) -> Tensor:
    """log p(y_m | x) at draws ``[M, k, size]``, ``[M, k]``."""
    problem, weights = group.stack.problem, group.stack.weights

    def function() -> Function:
        def lane(x: Tensor, *rest: Tensor) -> Tensor:
            own = likelihood(problem, rest if weights is None else rest[1:], None if weights is None else rest[0])
            return torch.func.vmap(own)(x)

        def lanes(*values: Tensor) -> tuple[Tensor]:
            return (torch.func.vmap(lane)(*values),)

        return lanes

    values = (draws, *(() if weights is None else (weights,)), *group.stack.tensors)
    key = ("terms", kind(problem), weights is not None)
    with torch.no_grad():
        return engine.captured(key, keep(problem), function, values)(*values)[0]
