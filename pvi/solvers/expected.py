"""E_q[log p(y_m | θ)] and its gradient in the mean parameters μ of q, exact where it can be.

The gradient in μ is the natural gradient in η. For a Gaussian it stands for the factor with the slope E[∇log p] and the
curvature E[∇²log p] at the mean (Bonnet, Price).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families.kinds import is_discrete
from pvi.objectives import LocalProblem, each, row_expectations
from pvi.programs.linear_predictor import LinearPredictor
from pvi.programs.program import log_likelihood

MAX_SCALE = 4.0
"""Standard deviation of a row's predictor that a search starts with at most."""


class Expected(NamedTuple):
    """E_q[log p(y_m | θ)], a scalar in nats, and its gradient in μ ``[num_natural]``."""

    value: Tensor
    gradient: Tensor


class NoExactForm(NamedTuple):
    """Why there are no exact expectations, in words for the user."""

    reason: str


Expectation = Callable[[Tensor], Expected]
"""From the η of q."""


def find_expectation(problem: LocalProblem, like: Tensor) -> Expectation | NoExactForm:
    """Exact expectations: by quadrature, for a likelihood in the family, or by a sum over all values of θ."""
    predictor, conjugate, family = problem.predictor, problem.conjugate, problem.approximation.family
    if isinstance(predictor, LinearPredictor):
        return lambda natural: _by_quadrature(problem, predictor, natural)
    if conjugate is not None and conjugate.exact:
        return lambda natural: Expected(
            (conjugate.natural * family.mean_parameters(natural)).sum() + conjugate.constant, conjugate.natural
        )
    if not is_discrete(family):
        return NoExactForm(predictor.reason)
    try:
        values = family.enumerate(like)
    except ValueError as error:
        return NoExactForm(str(error))
    rows = problem.batch.num_rows
    table = each(lambda x: log_likelihood(problem.program, x, problem.batch), values, rows).detach()

    def total(natural: Tensor) -> Tensor:
        log_prob = (natural * family.statistics(values)).sum(-1) - family.log_partition(natural)
        return (log_prob.exp() * table).sum()

    return lambda natural: natural_gradient(problem, natural, total)


def natural_gradient(problem: LocalProblem, natural: Tensor, value: Callable[[Tensor], Tensor]) -> Expected:
    """A function of η with its gradient in μ: F⁻¹ ∇_η."""
    leaf = natural.detach().clone().requires_grad_()
    with torch.enable_grad():
        found = value(leaf)
        (gradient,) = torch.autograd.grad(found, leaf)
    return Expected(found.detach(), problem.family.natural_gradient(natural, gradient))


def _by_quadrature(problem: LocalProblem, predictor: LinearPredictor, natural: Tensor) -> Expected:
    rows = row_expectations(predictor, problem.family, natural)
    loc = problem.family.location(natural)
    gradient = problem.family.quadratic(predictor.design.mT @ rows.first, predictor.design, -rows.second, loc)
    return Expected(rows.value.sum(), gradient)


def narrowed(problem: LocalProblem, natural: Tensor) -> Tensor:
    """A start, or one with its mean under which expectations of exp f are finite for every row's predictor f."""
    if not isinstance(problem.predictor, LinearPredictor):
        return natural
    scale = problem.family.predictor_variance(natural, problem.predictor.design).max().sqrt()
    return natural * (scale / MAX_SCALE).square().clamp(min=1)


def likelihood_slopes(problem: LocalProblem, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log p(y_m | x_k) in nats and its gradient at draws ``x [k, size]``: ``[k]`` and ``[k, size]``, without a graph.

    ``rows`` ``[b]`` gives the estimate n/b Σ over these rows.
    """

    def value(x: Tensor) -> Tensor:
        return log_likelihood(problem.program, x, problem.batch, rows)

    def both(x: Tensor) -> Tensor:
        gradient, found = torch.func.grad_and_value(value)(x)
        return torch.cat([found[None], gradient])

    found = each(both, x, problem.batch.num_rows if rows is None else len(rows)).detach()
    return found[:, 0], found[:, 1:]
