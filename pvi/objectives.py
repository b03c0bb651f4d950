"""What a client maximises, and its expected log likelihood: exact where it can be, or by Monte Carlo with its error."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, GaussianFamily, Product, entropy, expected_log_factor
from pvi.families.extension import Extension
from pvi.programs.batch import Batch
from pvi.programs.guides import Approximation
from pvi.programs.linear_predictor import LinearPredictor, NotAffine
from pvi.programs.program import Program, log_likelihood
from pvi.programs.recover import RecoveredFactor
from pvi.quadrature import MAX_ELEMENTS, RowExpectations, expectations, expected_value

NUM_SAMPLES = 128
"""Draws of an expectation that is not exact."""
NUMBERS_A_ROW = 8
"""What a model makes of one row, at one draw, more or less: bounds the memory of many draws at once."""


class LocalProblem(NamedTuple):
    """What one client knows: its rows, its program, the family of its q, and what was found out about its likelihood.

    ``approximation`` covers the shared latents and the client's own (``extension`` says how). ``absorbed`` is a factor
    over them that is part of the likelihood but solved for with the cavity, since it lies in the family: the prior of
    the client's own latents. ``predictor`` and ``conjugate`` describe the rest of the likelihood where it is
    generalised linear, or in the family. ``alpha`` is that of the divergence minimised: 0 for the variational one.
    ``elbo_samples`` are the draws of expectations of the free energy that are not exact.
    """

    client: str
    program: Program
    batch: Batch
    approximation: Approximation
    predictor: LinearPredictor | NotAffine
    extension: Extension
    absorbed: Tensor | None = None
    absorbed_constant: float = 0.0
    conjugate: RecoveredFactor | None = None
    conditional: Tensor | None = None
    alpha: float = 0.0
    elbo_samples: int = NUM_SAMPLES

    @property
    def family(self) -> Product:
        """The family of q over the shared latents and the client's own."""
        return self.approximation.family

    def local_cavity(self, natural: Tensor) -> Tensor:
        """η of the cavity over all latents, the absorbed factor included, from that over the shared ones."""
        embedded = self.extension.embed(natural)
        return embedded if self.absorbed is None else embedded + self.absorbed

    def local(self, natural: Tensor, conditional: Tensor | None) -> Tensor:
        """η of q(θ) q(z | θ) from that of q(θ)."""
        embedded = self.extension.embed(natural)
        return embedded if conditional is None else embedded + conditional


class Estimate(NamedTuple):
    """A value in nats and its Monte Carlo standard error (0 where it is exact)."""

    value: float
    standard_error: float


def row_expectations(predictor: LinearPredictor, family: GaussianFamily, natural: Tensor) -> RowExpectations:
    """One-dimensional quadrature over each row's predictor f_i ~ N(A_i·m + c_i, A_i·Σ A_i)."""
    return expectations(predictor.log_prob, *row_moments(predictor, family, natural), predictor.width)


def row_moments(predictor: LinearPredictor, family: GaussianFamily, natural: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each row's predictor, each ``[n]``."""
    loc = predictor.design @ family.location(natural) + predictor.offset
    return loc, family.predictor_variance(natural, predictor.design).sqrt()


def expected_log_likelihood(
    problem: LocalProblem, natural: Tensor, *, num_samples: int | None = None, seed: int = 0
) -> Estimate:
    """E_q[log p(y_m | θ)] in nats under the local q, without the absorbed factor.

    Exact where the likelihood is generalised linear or lies in the family, else from fixed draws, as many as the
    problem says where ``num_samples`` does not. With private latents
    it is E_q[log p(y_m, z | θ)].
    """
    if isinstance(problem.predictor, LinearPredictor):
        predictor = problem.predictor
        with torch.no_grad():
            moments = row_moments(predictor, problem.family, natural)
            rows = expected_value(predictor.log_prob, *moments, predictor.width)
        return Estimate(rows.sum().item(), 0.0)
    if problem.conjugate is not None:
        found = problem.conjugate
        expected = expected_log_factor(problem.family, natural, found.natural)
        return Estimate((expected + found.constant).item(), 0.0)
    number = problem.elbo_samples if num_samples is None else num_samples
    return average(sampled_log_likelihood(problem, problem.program, natural, num_samples=number, seed=seed))


def average(values: Tensor) -> Estimate:
    """The mean of independent draws ``[n]``."""
    return Estimate(values.mean().item(), (values.std() / math.sqrt(len(values))).item())


def is_exact(problem: LocalProblem) -> bool:
    """Whether E_q[log p(y_m | θ)] needs no draws."""
    return isinstance(problem.predictor, LinearPredictor) or problem.conjugate is not None


def sampled_log_likelihood(
    problem: LocalProblem, program: Program, natural: Tensor, *, num_samples: int = NUM_SAMPLES, seed: int = 0
) -> Tensor:
    """log p(y_m | θ_s) in nats at fixed draws from q, ``[num_samples]``; ``program`` may stand at hyperparameters u."""
    generator = torch.Generator(device=natural.device).manual_seed(seed)
    x = problem.family.sample(natural, (num_samples,), generator)
    return each(lambda x: log_likelihood(program, x, problem.batch), x, problem.batch.num_rows)


def client_term(problem: LocalProblem, natural: Tensor, conditional: Tensor | None, *, seed: int = 0) -> Estimate:
    """The client's part of the global free energy, nats: E_q[log p(y_m | θ)] or, with private latents z, its bound

        E_q(θ) q(z|θ)[log p(y_m, z | θ) - log q(z | θ)].

    ``natural`` is that of the shared q.
    """
    likelihood = expected_log_likelihood(problem, problem.local(natural, conditional), seed=seed)
    return with_own_latents(problem, natural, conditional, likelihood)


def with_own_latents(
    problem: LocalProblem, natural: Tensor, conditional: Tensor | None, likelihood: Estimate
) -> Estimate:
    """E_q[log p(y_m | θ)] with the terms of the client's own latents beside it."""
    if problem.absorbed is None and conditional is None:
        return likelihood
    local = problem.local(natural, conditional)
    extra = entropy(problem.family, local) - entropy(problem.extension.shared, natural)
    if problem.absorbed is not None:
        extra = extra + expected_log_factor(problem.family, local, problem.absorbed) + problem.absorbed_constant
    return Estimate(likelihood.value + extra.item(), likelihood.standard_error)


def each(function: Callable[[Tensor], Tensor], x: Tensor, num_rows: int = 1) -> Tensor:
    """``function`` at every row of x: vectorised where the program can be, else one after the other."""
    if len(x) == 1:
        return function(x[0])[None]
    chunk = max(1, MAX_ELEMENTS // (NUMBERS_A_ROW * max(1, num_rows)))
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

    ``natural`` and ``cavity`` are local ones. The cavity counts as exp(η_cav·T): a constant of its own is not included.
    """
    likelihood = expected_log_likelihood(problem, natural, seed=seed)
    return Estimate(likelihood.value + regulariser(problem.family, natural, cavity).item(), likelihood.standard_error)


__all__ = [
    "Estimate",
    "LocalProblem",
    "average",
    "client_term",
    "each",
    "expected_log_likelihood",
    "is_exact",
    "local_free_energy",
    "regulariser",
    "row_expectations",
    "row_moments",
    "sampled_log_likelihood",
    "with_own_latents",
]
