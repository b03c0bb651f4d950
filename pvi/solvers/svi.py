"""Functional stochastic variational inference: Adam on reparameterised gradients of F_m, until it no longer rises."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.engine import Engine
from pvi.families.kinds import is_discrete, is_gaussian
from pvi.objectives import LocalProblem
from pvi.programs.find_layers import find_layers
from pvi.programs.local_reparameterisation import Layers, NotLocal
from pvi.programs.program import num_rows
from pvi.programs.weighted import tensors_of
from pvi.solvers.draws import minibatches, noise_generator, row_generator
from pvi.solvers.lanes import lanes_of, rows_a_step
from pvi.solvers.many_svi import Options, ascend, units
from pvi.solvers.plateau import Course, judge, report
from pvi.solvers.protocol import Solved, SolverInfo
from pvi.solvers.svi_step import Draw, draws_by_step, init, likelihood_of_rows, local_at, loss, noise_size, step
from pvi.stack import NotVectorisable, has_fixed_rows

TEMPORARIES = 32
"""Tensors of the size of q's free parameters that a step holds at once."""
EXAMINED = 16
"""Rows at which layers are looked for."""
WORTH = 200
"""Steps of one client after the other that take longer than to capture one of all."""


@dataclass(frozen=True)
class SVI:
    """Functional SVI with Adam, on F_m or, for a problem with an alpha, on :func:`~pvi.solvers.renyi.renyi_estimate`.

    ``steps`` at most, or ``epochs`` passes over the client's rows instead; ``batch_size`` rows a step (all where
    ``None``); ``num_particles`` draws of θ a step. Every ``window`` steps the mean free energy is compared with the
    window before: where it twice in a row no longer rises beyond its noise, the learning rate is cut to a third, and
    after three cuts the next such plateau ends the solve. The result averages the iterates of the last window.
    The bound of an alpha divergence is flat in q for alpha near 1: there a step counts as a rise where the next
    gradient, whose draws are its own, still points along it (Pflug, 1990).

    ``local_reparameterisation`` draws the pre-activations of Bayesian linear layers row by row instead of their
    weights (convolutions: by Flipout), where q of the weights is mean field: less noise, no change to the model.
    ``plain`` is Adam as papers run it: on means and log standard deviations as they are, instead of in units of q's
    standard deviations, all steps at one learning rate, and the result is the last iterate. ``window`` then is what
    the reported free energy is averaged over at most; nothing is said about convergence.
    """

    steps: int = 3000
    learning_rate: float = 0.05
    batch_size: int | None = None
    num_particles: int = 4
    epochs: float | None = None
    window: int = 100
    local_reparameterisation: bool = False
    plain: bool = False

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

    def rows_a_step(self, problem: LocalProblem) -> int | None:
        """The mini-batch's rows, ``None`` where a step uses all: the model's own plate decides where it subsamples."""
        return rows_a_step(self.batch_size, problem)

    @torch.no_grad()  # a model may hold parameters that nobody learns
    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; raises ``ValueError`` for a discrete latent."""
        check_reparameterised(problem)
        family = problem.family
        origin, scale = family.free(start), units(family, start, self.plain)
        total = num_rows(problem.program, problem.batch)
        batches = minibatches(total, self.rows_a_step(problem), row_generator(seed, start.device))
        layers = self.layers(problem, start)
        number = noise_size(problem, layers, self.rows_a_step(problem) or total)
        noises = draws_by_step(problem, self.num_particles, number, noise_generator(seed, start.device), start)
        state, course = init(family.num_free, start), Course(self.learning_rate, plain=self.plain)
        window: list[Tensor] = []
        rises: list[Tensor] = []
        sums, most, before = torch.zeros_like(state.offset), self.num_steps(total), state.offset
        for taken, rows, draw in zip(range(1, most + 1), batches, noises, strict=False):

            def negative(offset: Tensor, rows: Tensor | None = rows, draw: Draw = draw) -> Tensor:
                free = origin + scale * offset
                return loss(
                    problem,
                    cavity,
                    free,
                    draw(free),
                    likelihood_of_rows(problem, rows, local_at(problem, layers, free)),
                )

            last, before = before, state.offset
            state, info = step(state, negative, course.rate)
            window.append(info.free_energy)
            rises.append(info.gradient @ (before - last))
            sums = sums + state.offset
            if len(window) < self.window and taken < most:
                continue
            offset = state.offset if self.plain else sums / len(window)
            course = judge(course, torch.stack(window), torch.stack(rises) if problem.alpha else None)
            window, rises, sums = [], [], torch.zeros_like(sums)
            if course.over:
                break
        return family.natural_from_free(origin + scale * offset).detach(), report(course, taken)

    def layers(self, problem: LocalProblem, like: Tensor) -> Layers | None:
        """The layers that are drawn by row; raises ``ValueError`` where that is asked for and there are none."""
        if not self.local_reparameterisation:
            return None
        head = problem.batch.take(torch.arange(min(problem.batch.num_rows, EXAMINED), device=like.device))
        found = find_layers(problem.program, problem.family, head, like)
        reason = found.reason if isinstance(found, NotLocal) else ""
        if problem.alpha:
            reason = "the Rényi bound needs draws of the weights themselves"
        if isinstance(found, NotLocal) or reason:
            raise ValueError(
                f"client {problem.client!r}: SVI(local_reparameterisation=True) has nothing to draw row by row: "
                f"{reason}; leave the option out"
            )
        return found

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """See :class:`~pvi.solvers.protocol.ManySolver`: q's parameters, draws and what a model makes of the rows."""
        data = sum(value.numel() for value in tensors_of(problem.batch))
        size = self.rows_a_step(problem)
        seen = data if size is None else data * size // problem.batch.num_rows
        numbers = TEMPORARIES * problem.family.num_free + self.num_particles * (8 * problem.family.size + 8 * seen)
        return (numbers + data) * problem.batch.dtype.itemsize

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """See :class:`~pvi.solvers.protocol.ManySolver`: to capture a step costs about as much as to take a hundred.

        Clients that are not padded need a capture for every number of rows a step.
        """
        fixed = [one for one in problems if self.local_reparameterisation or has_fixed_rows(one)]
        captures = len({self.rows_a_step(one) or one.batch.num_rows for one in fixed}) or 1
        return sum(self.num_steps(num_rows(one.program, one.batch)) for one in problems) > WORTH * captures

    def solve_many(
        self,
        problems: Sequence[LocalProblem],
        cavities: Sequence[Tensor],
        starts: Sequence[Tensor],
        seeds: Sequence[int],
        engine: Engine,
    ) -> list[Solved]:
        """See :class:`~pvi.solvers.protocol.ManySolver`."""
        for problem in problems:
            check_reparameterised(problem)
            if not is_gaussian(problem.family):
                raise NotVectorisable("the draws of families that are not Gaussian have no batched form")
        found: dict[int, Solved] = {}
        sizes, pad = [self.rows_a_step(problem) for problem in problems], not self.local_reparameterisation
        for lanes in lanes_of(problems, starts, sizes, engine, pad=pad):
            most = [self.num_steps(total) for total in lanes.totals]
            layers = self.layers(lanes.problem, starts[lanes.members[0]])
            options = Options(self.plain, self.learning_rate, self.num_particles, self.window, most, layers)
            own, begun = (torch.stack([values[index] for index in lanes.members]) for values in (cavities, starts))
            solved = ascend(options, lanes, own, begun, [seeds[index] for index in lanes.members], engine)
            found |= dict(zip(lanes.members, solved, strict=True))
        return [found[index] for index in range(len(problems))]


def check_reparameterised(problem: LocalProblem) -> None:
    """Raises ``ValueError`` where a latent's draws have no derivative."""
    whole = problem.approximation.family
    discrete = [name for name, member in zip(whole.names, whole.members, strict=True) if is_discrete(member)]
    if discrete:
        raise ValueError(
            f"client {problem.client!r}: SVI needs draws with a derivative, which the discrete latents {discrete} do "
            "not have; use pvi.solvers.NaturalGradient, or sum them out in the model"
        )
