"""Hyperparameters ε are learned by maximising the free energy F(q, ε) (paper, appendix A).

At a fixed q the clients' parts of dF/dε add up: each client sends gradient and curvature of its E_q[log p(y_m | θ, ε)],
a few numbers, and the server adds those of E_q[log p(θ | ε)] and takes the step. ε is unconstrained, u ``[k]``.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.assembly import Problem, program_at
from pvi.families import Family
from pvi.objectives import LocalProblem, each
from pvi.programs.linear_predictor import LinearPredictor, predictor_at, row_log_prob
from pvi.programs.program import Program, log_likelihood, log_prior, log_private_prior
from pvi.programs.recover import factor_parameters
from pvi.quadrature import gaussian_quadrature

SAMPLES = 256
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
    bound = local.program.counted

    def value(u: Tensor) -> Tensor:
        program = program_at(problem.setup, client, u)._replace(counted=bound)
        total = _expected(local, program, at)
        if local.absorbed is not None:
            own = program._replace(counted=None)
            total = total + _in_family(local.family, lambda x: log_private_prior(own, x, local.batch), at)
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
            return _in_family(family, lambda x: log_prior(program, x, batch), natural)
        return _sampled(
            own, program._replace(counted=own.program.counted, coordinates=own.program.coordinates), natural
        )

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


def _in_family(family: Family, log_factor: Callable[[Tensor], Tensor], natural: Tensor) -> Tensor:
    """E_q of a log factor that lies in the family."""
    found, constant = factor_parameters(family, log_factor, natural)
    return (found * family.mean_parameters(natural)).sum() + constant


def _expected(local: LocalProblem, program: Program, natural: Tensor) -> Tensor:
    if isinstance(local.predictor, LinearPredictor):
        return _by_quadrature(local, local.predictor, program, natural)
    if local.conjugate is not None:
        return _in_family(local.family, lambda x: log_likelihood(program, x, local.batch), natural)
    return _sampled(local, program, natural)


def _by_quadrature(local: LocalProblem, predictor: LinearPredictor, program: Program, natural: Tensor) -> Tensor:
    """Σ_i E[log p(y_i | f_i, ε)]; the predictor moves with ε too where it depends on it."""
    family, batch = local.family, local.batch
    zero = natural.new_zeros(family.size)
    offset = predictor_at(program, batch, zero)
    basis = torch.eye(family.size, dtype=zero.dtype, device=zero.device)
    design = torch.func.vmap(lambda x: predictor_at(program, batch, x))(basis).mT - offset[:, None]
    loc = design @ family.location(natural) + offset
    scale = family.predictor_variance(natural, design).sqrt()
    nodes, weights = gaussian_quadrature(scale.detach().max().item(), predictor.width, loc)
    values = torch.func.vmap(lambda node: row_log_prob(program, batch, zero, loc + scale * node).sum())(nodes)
    return weights @ values


def _sampled(local: LocalProblem, program: Program, natural: Tensor) -> Tensor:
    generator = torch.Generator(device=natural.device).manual_seed(0)
    x = local.family.sample(natural, (SAMPLES,), generator)
    return each(lambda x: log_likelihood(program, x, local.batch), x, local.batch.num_rows).mean()
