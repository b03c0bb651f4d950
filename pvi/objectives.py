"""What a client maximises, and its expected log likelihood: exact by quadrature, or by Monte Carlo with its error."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, GaussianFamily
from pvi.programs.batch import Batch
from pvi.programs.guides import Approximation
from pvi.programs.linear_predictor import LinearPredictor, NotAffine
from pvi.programs.program import Program, log_likelihood

MAX_ELEMENTS = 4_000_000
"""Numbers in one vmapped evaluation: bounds the memory of quadrature and Monte Carlo."""
MAX_NODES, MAX_RANGE = 1024, 12.0
"""Quadrature: nodes a row, and the range in standard deviations."""


class LocalProblem(NamedTuple):
    """What one client knows: its rows, its program, the family of q, and its linear predictor if it has one."""

    client: str
    program: Program
    batch: Batch
    approximation: Approximation
    predictor: LinearPredictor | NotAffine

    @property
    def family(self) -> GaussianFamily:
        """The family of q."""
        return self.approximation.family


class RowExpectations(NamedTuple):
    """E[log p(y_i | f_i)] and the expectations of its first two derivatives, each ``[n]``, in nats."""

    value: Tensor
    first: Tensor
    second: Tensor


class Estimate(NamedTuple):
    """A value in nats and its Monte Carlo standard error (0 where it is exact)."""

    value: float
    standard_error: float


def gaussian_quadrature(scale: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes z and weights of E[g(s z)], z ~ N(0, 1), good to about 1e-10 for log likelihoods of width one.

    The trapezoidal rule: on an analytic g with singularities at distance a from the real line its error is
    exp(-2π a / (s h)) (Trefethen and Weideman, 2014); a = π for the logistic function. Gauss-Hermite nodes are as good
    for s up to 2, but at s = 10 it takes a thousand of them. The range grows with s for g as steep as exp.
    """
    step = min(0.5, 0.8 / max(scale, 1e-3))
    reach = 8 + min(scale, MAX_RANGE - 8)
    half = min(math.ceil(reach / step), MAX_NODES // 2)
    nodes = torch.linspace(-reach, reach, 2 * half + 1, dtype=like.dtype, device=like.device)
    return nodes, torch.softmax(-0.5 * nodes.square(), 0)


def row_expectations(predictor: LinearPredictor, family: GaussianFamily, natural: Tensor) -> RowExpectations:
    """One-dimensional quadrature over each row's predictor f_i ~ N(A_i·m + c_i, A_i·Σ A_i)."""
    loc = predictor.design @ family.location(natural) + predictor.offset
    scale = family.predictor_variance(natural, predictor.design).sqrt()
    nodes, weights = gaussian_quadrature(scale.max().item(), loc)
    chunk = max(1, MAX_ELEMENTS // max(1, len(loc)))

    # Rows are independent, so derivatives of the sum are the rows' own; one run of the program gives all three.
    def value(f: Tensor) -> tuple[Tensor, Tensor]:
        rows = predictor.log_prob(f)
        return rows.sum(), rows

    def slope(f: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        first, rows = torch.func.grad(value, has_aux=True)(f)
        return first.sum(), (first, rows)

    def at(node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        second, (first, rows) = torch.func.grad(slope, has_aux=True)(loc + scale * node)
        return rows, first, second

    values, firsts, seconds = torch.func.vmap(at, chunk_size=chunk)(nodes)
    return RowExpectations(weights @ values, weights @ firsts, weights @ seconds)


def expected_log_likelihood(
    problem: LocalProblem, natural: Tensor, *, num_samples: int = 128, seed: int = 0
) -> Estimate:
    """E_q[log p(y_m | θ)] in nats: exact where the model is generalised linear, else from fixed draws."""
    if isinstance(problem.predictor, LinearPredictor):
        rows = row_expectations(problem.predictor, problem.family, natural)
        return Estimate(rows.value.sum().item(), 0.0)
    generator = torch.Generator(device=natural.device).manual_seed(seed)
    x = problem.family.sample(natural, (num_samples,), generator)
    values = each(lambda x: log_likelihood(problem.program, x, problem.batch), x, problem.batch.num_rows)
    return Estimate(values.mean().item(), (values.std() / math.sqrt(num_samples)).item())


def each(function: Callable[[Tensor], Tensor], x: Tensor, num_rows: int = 1) -> Tensor:
    """``function`` at every row of x: vectorised where the program can be, else one after the other."""
    if len(x) == 1:
        return function(x[0])[None]
    chunk = max(1, MAX_ELEMENTS // max(1, num_rows))
    try:
        return torch.func.vmap(function, chunk_size=chunk, randomness="different")(x)
    except RuntimeError:
        # Control flow on values, or an operation without a batching rule.
        return torch.stack([function(row) for row in x])


def regulariser(family: Family, natural: Tensor, cavity: Tensor) -> Tensor:
    """E_q[log cavity] + H[q] = (η_cav - η)·μ + A(η) in nats for the cavity exp(η_cav·T), proper or not."""
    return ((cavity - natural) * family.mean_parameters(natural)).sum(-1) + family.log_partition(natural)


def local_free_energy(problem: LocalProblem, natural: Tensor, cavity: Tensor, *, seed: int = 0) -> Estimate:
    """F_m(q) = E_q[log p(y_m | θ)] + E_q[log cavity] + H[q] in nats (algorithm 1, equation 2), maximised.

    The cavity counts as exp(η_cav·T): a constant of its own is not included.
    """
    likelihood = expected_log_likelihood(problem, natural, seed=seed)
    return Estimate(likelihood.value + regulariser(problem.family, natural, cavity).item(), likelihood.standard_error)
