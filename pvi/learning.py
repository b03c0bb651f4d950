"""Hyperparameters ε are learned by maximising the free energy F(q, ε) (paper, appendix A).

At a fixed q the clients' parts of dF/dε add up: each client sends gradient and curvature of its E_q[log p(y_m | θ, ε)],
a few numbers, and the server adds those of E_q[log p(θ | ε)] and takes the step. ε is unconstrained, u ``[k]``.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.assembly import Problem, program_at
from pvi.families import Family, expected_log_factor
from pvi.objectives import LocalProblem, row_moments, sampled_log_likelihood
from pvi.programs.linear_predictor import LinearPredictor, predictor_at, row_log_prob
from pvi.programs.program import Program, log_likelihood, log_prior, log_private_prior
from pvi.programs.recover import factor_parameters
from pvi.programs.separable import element_log_prob
from pvi.quadrature import gaussian_quadrature

LARGEST = 1.0
"""The largest change of a hyperparameter in one round, in its unconstrained space (a factor of e for a scale)."""


class Slope(NamedTuple):
    """Gradient ``[k]`` and curvature ``[k, k]`` of a part of the free energy in u, nats."""

    gradient: Tensor
    curvature: Tensor


def client_slope(problem: Problem, client: str, natural: Tensor, conditional: Tensor | None) -> Slope:
    """The client's part at the shared q; exact wherever the expectations are."""
    local = problem.clients[client]
    at = local.local(natural, conditional)
    bound, seed = local.program.counted, list(problem.clients).index(client)

    def value(u: Tensor) -> Tensor:
        program = program_at(problem.setup, client, u)._replace(counted=bound)
        total = _expected(local, program, at, seed)
        if local.absorbed is not None:
            own = program._replace(counted=None)
            total = total + _of_factor(local.family, lambda x: log_private_prior(own, x, local.batch), at)
        return total

    return _slope(value, problem.hyperparameters)


def prior_slope(problem: Problem, natural: Tensor) -> Slope:
    """The server's part, E_q[log p(θ | ε)]."""
    setup = problem.setup
    client, batch = next(iter(setup.batches.items()))

    def value(u: Tensor) -> Tensor:
        program = program_at(setup, client, u)
        family, own = setup.shared.family, problem.prior_problem
        if own is None:
            return _of_factor(family, lambda x: log_prior(program, x, batch), natural)
        program = program._replace(counted=own.program.counted, coordinates=own.program.coordinates)
        if isinstance(own.predictor, LinearPredictor):
            moments = row_moments(own.predictor, own.family, natural)
            elements = own.predictor._replace(log_prob=lambda x: element_log_prob(program, own.batch, x))
            return _by_nodes(elements, *moments)
        return sampled_log_likelihood(own, program, natural, seed=len(problem.clients)).mean()

    return _slope(value, problem.hyperparameters)


def ascend(u: Tensor, slope: Slope) -> Tensor:
    """A Newton step uphill, no longer than ``LARGEST`` in any hyperparameter, whatever the sign of the curvature."""
    curvature = 0.5 * (slope.curvature + slope.curvature.mT)
    values, vectors = torch.linalg.eigh(curvature)
    floor = 1e-8 * values.abs().max().clamp(min=1.0)
    step = vectors @ ((vectors.mT @ slope.gradient) / values.abs().clamp(min=floor))
    return u + step * (LARGEST / step.abs().max().clamp(min=LARGEST))


def add(slopes: list[Slope]) -> Slope:
    """The sum over the parts: all that leaves the clients together."""
    return Slope(
        torch.stack([slope.gradient for slope in slopes]).sum(0),
        torch.stack([slope.curvature for slope in slopes]).sum(0),
    )


def _slope(value: Callable[[Tensor], Tensor], u: Tensor) -> Slope:
    gradient = torch.func.grad(value)
    return Slope(gradient(u).detach(), torch.func.jacrev(gradient)(u).detach())


def _of_factor(family: Family, log_factor: Callable[[Tensor], Tensor], natural: Tensor) -> Tensor:
    """E_q of a log factor that lies in the family."""
    found, constant = factor_parameters(family, log_factor, natural)
    return expected_log_factor(family, natural, found) + constant


def _expected(local: LocalProblem, program: Program, natural: Tensor, seed: int) -> Tensor:
    """E_q[log p(y_m | θ, ε)], with the draws of the free energy where it takes draws."""
    if isinstance(local.predictor, LinearPredictor):
        return _by_quadrature(local, local.predictor, program, natural)
    if local.conjugate is not None:
        return _of_factor(local.family, lambda x: log_likelihood(program, x, local.batch), natural)
    return sampled_log_likelihood(local, program, natural, seed=seed).mean()


def _by_quadrature(local: LocalProblem, predictor: LinearPredictor, program: Program, natural: Tensor) -> Tensor:
    """Σ_i E[log p(y_i | f_i, ε)]; the predictor moves with ε too where it depends on it."""
    family, batch = local.family, local.batch
    zero = natural.new_zeros(family.size)
    offset = predictor_at(program, batch, zero)
    basis = torch.eye(family.size, dtype=zero.dtype, device=zero.device)
    design = torch.func.vmap(lambda x: predictor_at(program, batch, x))(basis).mT - offset[:, None]
    moved = predictor._replace(design=design, offset=offset, log_prob=lambda f: row_log_prob(program, batch, zero, f))
    return _by_nodes(moved, *row_moments(moved, family, natural))


def _by_nodes(predictor: LinearPredictor, loc: Tensor, scale: Tensor) -> Tensor:
    """Σ_i E[log p(y_i | f_i)], differentiable in everything."""
    nodes, weights = gaussian_quadrature(scale.detach().max().item(), predictor.width, loc)
    return weights @ torch.func.vmap(lambda node: predictor.log_prob(loc + scale * node).sum())(nodes)
