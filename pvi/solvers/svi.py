"""Functional stochastic variational inference: reparameterised gradients of F_m, Adam, no global state.

Every step is ``(state, ...) -> (state, info)`` on tensors and safe under ``torch.func.vmap``. The parameters are
offsets from the q that the client was sent, in units of q's own standard deviations, so that one learning rate serves
coefficients of every scale.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families.kinds import is_discrete
from pvi.objectives import LocalProblem, each, regulariser
from pvi.programs.program import log_likelihood, num_rows
from pvi.solvers.protocol import SolverInfo
from pvi.solvers.renyi import renyi_estimate

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
MAX_CUTS = 3
"""Learning-rate cuts before a plateau of F_m counts as the end."""
MAX_NOISE = 1.0
"""Nats, or per cent of the free energy: a mean that is known no better shows no plateau."""
PATIENCE = 2
"""Windows in a row without a visible rise that make a plateau: one alone is often noise."""


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


def step(state: SVIState, loss: Callable[[Tensor], Tensor], learning_rate: float) -> tuple[SVIState, SVIInfo]:
    """One Adam step on an estimate of -F_m as a function of the offsets (Kingma and Ba, 2015)."""
    gradient, value = torch.func.grad_and_value(loss)(state.offset)
    steps = state.steps + 1
    first = BETA_1 * state.first + (1 - BETA_1) * gradient
    second = BETA_2 * state.second + (1 - BETA_2) * gradient.square()
    direction = (first / (1 - BETA_1**steps)) / ((second / (1 - BETA_2**steps)).sqrt() + EPSILON)
    return SVIState(state.offset - learning_rate * direction, first, second, steps), SVIInfo(-value, -gradient)


def free_energy_estimate(
    problem: LocalProblem,
    cavity: Tensor,
    natural: Tensor,
    rows: Tensor | None,
    num_particles: int,
    generator: torch.Generator | None,
) -> Tensor:
    """An unbiased, reparameterised estimate of F_m(q) in nats: E[log p] by draws, the rest in closed form."""
    x = problem.family.sample(natural, (num_particles,), generator)
    size = problem.batch.num_rows if rows is None else len(rows)
    values = each(lambda x: log_likelihood(problem.program, x, problem.batch, rows), x, size)
    return values.mean() + regulariser(problem.family, natural, cavity)


def minibatches(total: int, batch_size: int | None, generator: torch.Generator) -> Iterator[Tensor | None]:
    """Rows of one step after the other: without replacement within an epoch, an incomplete last batch is skipped."""
    if batch_size is None or batch_size >= total:
        while True:
            yield None
    while True:
        order = torch.randperm(total, generator=generator, device=generator.device)
        for start in range(0, total - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


@dataclass(frozen=True)
class SVI:
    """Functional SVI with Adam, on F_m or, for a problem with an alpha, on :func:`~pvi.solvers.renyi.renyi_estimate`.

    ``steps`` at most, or ``epochs`` passes over the client's rows instead; ``batch_size`` rows a step (all where
    ``None``); ``num_particles`` draws of θ a step. Every ``window`` steps the mean free energy is compared with the
    window before: where it twice in a row no longer rises beyond its noise, the learning rate is cut to a third, and
    after three cuts the next such plateau ends the solve. The result averages the iterates of the last window.
    The bound of an alpha divergence is flat in q for alpha near 1: there a step counts as a rise where the next
    gradient, whose draws are its own, still points along it (Pflug, 1990).
    """

    steps: int = 3000
    learning_rate: float = 0.05
    batch_size: int | None = None
    num_particles: int = 4
    epochs: float | None = None
    window: int = 100

    def __post_init__(self) -> None:
        for label in ("steps", "num_particles", "window"):
            if getattr(self, label) < 1:
                raise ValueError(f"SVI: {label} must be at least 1, got {getattr(self, label)}")
        if self.learning_rate <= 0:
            raise ValueError(f"SVI: learning_rate must be positive, got {self.learning_rate}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"SVI: batch_size must be at least 1, got {self.batch_size}")
        if self.epochs is not None and self.epochs <= 0:
            raise ValueError(f"SVI: epochs must be positive, got {self.epochs}")

    @property
    def name(self) -> str:
        """``SVI``."""
        return "SVI"

    def num_steps(self, rows: int) -> int:
        """Steps at most for a client with so many rows."""
        if self.epochs is None:
            return self.steps
        return max(1, round(self.epochs * rows / min(rows, self.batch_size or rows)))

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; raises ``ValueError`` for a discrete latent."""
        _check_reparameterised(problem)
        family = problem.family
        generator = torch.Generator(device=start.device).manual_seed(seed)
        origin, scale = family.free(start), family.free_scale(start)
        total = num_rows(problem.program, problem.batch)
        plate = problem.program.sites.subsampling
        batches = minibatches(total, self.batch_size if plate is None else plate[2], generator)
        state, rate, cuts, still = init(family.num_free, start), self.learning_rate, 0, 0
        window: list[Tensor] = []
        rises: list[Tensor] = []
        sums, previous = torch.zeros_like(state.offset), None
        estimate = renyi_estimate if problem.alpha else free_energy_estimate
        most, before = self.num_steps(total), state.offset
        for taken, rows in zip(range(1, most + 1), batches, strict=False):

            def loss(offset: Tensor, rows: Tensor | None = rows) -> Tensor:
                natural = family.natural_from_free(origin + scale * offset)
                return -estimate(problem, cavity, natural, rows, self.num_particles, generator)

            last, before = before, state.offset
            state, info = step(state, loss, rate)
            window.append(info.free_energy)
            rises.append(info.gradient @ (before - last))
            sums = sums + state.offset
            if len(window) < self.window and taken < most:
                continue
            average, current = sums / len(window), torch.stack(window)
            plateau = _lost(torch.stack(rises)) if problem.alpha else _plateau(previous, current)
            window, rises, sums = [], [], torch.zeros_like(sums)
            still = still + 1 if plateau else 0
            if still == PATIENCE:
                rate, cuts, still = rate / 3, cuts + 1, 0
            previous = current
            if cuts > MAX_CUTS:
                break
        natural = family.natural_from_free(origin + scale * average).detach()
        value, noise = current.mean().item(), (current.var(unbiased=False) / len(current)).sqrt().item()
        message = "" if cuts > MAX_CUTS else f"the free energy still rose after {taken} steps"
        if not message and not noise <= max(MAX_NOISE, MAX_NOISE / 100 * abs(value)):
            message = f"the free energy is too noisy to tell ({value:.3g} ± {noise:.2g} nats over {len(current)} steps)"
        return natural, SolverInfo(taken, value, not message, message)


def _check_reparameterised(problem: LocalProblem) -> None:
    whole = problem.approximation.family
    discrete = [name for name, member in zip(whole.names, whole.members, strict=True) if is_discrete(member)]
    if discrete:
        raise ValueError(
            f"client {problem.client!r}: SVI needs draws with a derivative, which the discrete latents {discrete} do "
            "not have; use pvi.solvers.NaturalGradient, or sum them out in the model"
        )


def _plateau(previous: Tensor | None, current: Tensor) -> bool:
    """Whether the mean rose by less than the standard error of the difference."""
    if previous is None:
        return False
    noise = previous.var() / len(previous) + current.var(unbiased=len(current) > 1) / len(current)
    return bool(current.mean() - previous.mean() < noise.sqrt())


def _lost(rises: Tensor) -> bool:
    """Whether gradients point along the steps before them by less than the standard error of that."""
    return len(rises) > 1 and bool(rises.mean() < rises.std() / len(rises) ** 0.5)
