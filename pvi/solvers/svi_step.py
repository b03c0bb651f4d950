"""One step of functional SVI: a reparameterised gradient of F_m, Adam, no global state.

Steps are ``(state, ...) -> (state, info)`` on tensors and safe under ``torch.func.vmap``. The parameters are offsets
from the q that the client was sent, in units of q's own standard deviations, so that one learning rate serves
coefficients of every scale.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, GaussianFamily
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem, each, regulariser
from pvi.programs.local_reparameterisation import Layers
from pvi.programs.program import log_likelihood
from pvi.programs.weighted import tensors_of
from pvi.solvers.draws import noise
from pvi.solvers.renyi import renyi_estimate
from pvi.stack import Local, likelihood

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class SVIState(NamedTuple):
    """Offsets in free coordinates ``[num_free]``, Adam's moments, and the number of steps taken (a scalar)."""

    offset: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor


class SVIInfo(NamedTuple):
    """The estimates of F_m, in nats, and of its gradient ``[num_free]`` before the step was taken."""

    free_energy: Tensor
    gradient: Tensor


def init(num_free: int, like: Tensor) -> SVIState:
    """No offset, empty moments."""
    zero = like.new_zeros(num_free)
    return SVIState(zero, zero, zero, like.new_zeros(()))


def step(state: SVIState, loss: Callable[[Tensor], Tensor], learning_rate: float | Tensor) -> tuple[SVIState, SVIInfo]:
    """One Adam step on an estimate of -F_m as a function of the offsets (Kingma and Ba, 2015)."""
    gradient, value = torch.func.grad_and_value(loss)(state.offset)
    steps = state.steps + 1
    first = BETA_1 * state.first + (1 - BETA_1) * gradient
    second = BETA_2 * state.second + (1 - BETA_2) * gradient * gradient
    direction = (first / (1 - BETA_1**steps)) / ((second / (1 - BETA_2**steps)).sqrt() + EPSILON)
    return SVIState(state.offset - learning_rate * direction, first, second, steps), SVIInfo(-value, -gradient)


def noise_size(problem: LocalProblem, layers: Layers | None, rows: int) -> int:
    """Standard normal numbers of one particle: one a latent, and behind them those of the rows' layers."""
    return problem.family.size + (0 if layers is None else rows * layers.num_noise)


def draws(family: GaussianFamily, free: Tensor, numbers: Tensor) -> Tensor:
    """Draws ``[num_particles, size]`` from the q with these free coordinates; noise beyond that stays behind them."""
    if numbers.shape[-1] == family.size:
        return family.draw(free, numbers)
    return torch.cat([family.draw(free, numbers[..., : family.size]), numbers[..., family.size :]], -1)


Draw = Callable[[Tensor], Tensor]
"""Draws ``[num_particles, size]`` from the q with free coordinates ``[num_free]``, differentiable in them."""


def draws_by_step(
    problem: LocalProblem, number: int, size: int, generator: torch.Generator, like: Tensor
) -> Iterator[Draw]:
    """One step's draws after the other: moved standard normal numbers where the family is Gaussian."""
    family: Family = problem.family
    if is_gaussian(family):
        for numbers in noise(number, size, generator, like):
            yield partial(draws, family, numbers=numbers)
    while True:
        yield lambda free: family.sample(family.natural_from_free(free), (number,), generator)


def local_at(problem: LocalProblem, layers: Layers | None, free: Tensor) -> Local | None:
    """What layers drawn by row need to know of q."""
    if layers is None:
        return None
    loc, variance = problem.family.moments(problem.family.natural_from_free(free))
    return Local(layers, loc, variance.sqrt())


def likelihood_of_rows(problem: LocalProblem, rows: Tensor | None, local: Local | None) -> Callable[[Tensor], Tensor]:
    """x -> log p of the client's rows, (n/b) times that of the mini-batch's, in nats; for one client alone."""
    if local is None:
        return partial(log_likelihood, problem.program, batch=problem.batch, rows=rows)
    batch, scale = problem.batch, 1.0
    if rows is not None:
        batch, scale = batch.take(rows), batch.num_rows / len(rows)
    return likelihood(problem, tensors_of(batch), None, scale, None, local)


def free_energy_estimate(
    problem: LocalProblem, cavity: Tensor, free: Tensor, x: Tensor, likelihood: Callable[[Tensor], Tensor]
) -> Tensor:
    """An unbiased, reparameterised estimate of F_m(q) in nats: E[log p] by draws, the rest in closed form.

    q has the free coordinates ``[num_free]``; ``x [num_particles, size]`` are draws from it, differentiable in them;
    ``likelihood`` maps one to log p(y_m | x).
    """
    family: Family = problem.family
    if is_gaussian(family):
        rest = family.free_regulariser(free, cavity)
    else:
        rest = regulariser(family, family.natural_from_free(free), cavity)
    return each(likelihood, x, problem.batch.num_rows).mean() + rest


def loss(
    problem: LocalProblem, cavity: Tensor, free: Tensor, x: Tensor, likelihood: Callable[[Tensor], Tensor]
) -> Tensor:
    """What SVI minimises: -F_m, or for a problem with an alpha the negative Rényi bound."""
    if problem.alpha:
        return -renyi_estimate(problem, cavity, problem.family.natural_from_free(free), x, likelihood)
    return -free_energy_estimate(problem, cavity, free, x, likelihood)
