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
from pvi.quadrature import MAX_ELEMENTS, RowExpectations, expectations


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


class Estimate(NamedTuple):
    """A value in nats and its Monte Carlo standard error (0 where it is exact)."""

    value: float
    standard_error: float


def row_expectations(predictor: LinearPredictor, family: GaussianFamily, natural: Tensor) -> RowExpectations:
    """One-dimensional quadrature over each row's predictor f_i ~ N(A_i·m + c_i, A_i·Σ A_i)."""
    loc = predictor.design @ family.location(natural) + predictor.offset
    scale = family.predictor_variance(natural, predictor.design).sqrt()
    return expectations(predictor.log_prob, loc, scale, predictor.width)


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
