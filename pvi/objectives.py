"""What a client maximises, and its expected log likelihood: exact by quadrature, or by Monte Carlo with its error."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pvi.families import Family, GaussianFamily, entropy, expected_log_factor
from pvi.programs.batch import Batch
from pvi.programs.guides import Approximation
from pvi.programs.linear_predictor import LinearPredictor, NotAffine
from pvi.programs.program import Program, log_likelihood

MAX_ELEMENTS = 4_000_000
"""Numbers in one vmapped evaluation: bounds the memory of quadrature and Monte Carlo."""


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


def gauss_hermite(num_nodes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of E[g(z)] for z ~ N(0, 1), each ``[num_nodes]``."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    return like.new_tensor(nodes), like.new_tensor(weights / weights.sum())


def row_expectations(
    predictor: LinearPredictor, family: GaussianFamily, natural: Tensor, num_nodes: int
) -> RowExpectations:
    """One-dimensional Gauss-Hermite quadrature over each row's predictor f_i ~ N(A_i·m + c_i, A_i·Σ A_i)."""
    loc = predictor.design @ family.location(natural) + predictor.offset
    scale = family.predictor_variance(natural, predictor.design).sqrt()
    nodes, weights = gauss_hermite(num_nodes, loc)
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
    problem: LocalProblem, natural: Tensor, *, num_nodes: int = 32, num_samples: int = 128, seed: int = 0
) -> Estimate:
    """E_q[log p(y_m | θ)] in nats: exact where the model is generalised linear, else from fixed draws."""
    if isinstance(problem.predictor, LinearPredictor):
        rows = row_expectations(problem.predictor, problem.family, natural, num_nodes)
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
    """E_q[log cavity] + H[q] in nats for the unnormalised cavity exp(η_cav·T), proper or not."""
    return expected_log_factor(family, natural, cavity) + entropy(family, natural)


def local_free_energy(problem: LocalProblem, natural: Tensor, cavity: Tensor, *, seed: int = 0) -> Estimate:
    """F_m(q) = E_q[log p(y_m | θ)] + E_q[log cavity] + H[q] in nats (algorithm 1, equation 2), maximised.

    The cavity counts as exp(η_cav·T): a constant of its own is not included.
    """
    likelihood = expected_log_likelihood(problem, natural, seed=seed)
    return Estimate(likelihood.value + regulariser(problem.family, natural, cavity).item(), likelihood.standard_error)
