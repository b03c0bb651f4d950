"""Ditto's local solver (Li et al. 2021, algorithm 1): FedAvg's steps, and beside them those of a personal estimate.

On each mini-batch's mean negative log likelihood f_i, with the estimate θ_S that the server sent,

    θ ← θ - η ∇f_i(θ)   from θ_S,   and   v_i ← v_i - η_v (∇f_i(v_i) + λ (v_i - θ_S))   from the client's last v_i

where θ is the answer and v_i stays. At the first visit v_i starts at θ_S.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_number
from pvi.solvers.optimisers import Optimiser, resolve_optimiser
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_points, check_steps, mean_loss, rows_of, steps_of
from pvi.solvers.rule import Begun, Ended, Likelihood

METHOD = "Ditto"


@dataclass(frozen=True)
class DittoSteps:
    """The options of :func:`pvi.Ditto` that concern a client. Raises ``ValueError`` for values out of range.

    ``proximal`` is λ. A client keeps v_i, with the standard deviations of the q that it was sent around it.
    """

    proximal: float = 0.1
    local_iterations: int | None = 20
    epochs: int | None = None
    batch_size: int | None = 20
    learning_rate: float = 0.01
    personal_learning_rate: float = 0.01
    optimiser: str = "sgd"

    name: ClassVar[str] = "ditto-steps"
    num_particles: ClassVar[int] = 0
    by_layer: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_steps(METHOD, self.local_iterations, self.epochs, self.batch_size)
        check_number(METHOD, proximal=self.proximal, learning_rate=self.learning_rate,
                     personal_learning_rate=self.personal_learning_rate)  # fmt: skip
        _ = self.steppers

    @property
    def steppers(self) -> tuple[Optimiser, Optimiser]:
        """The optimisers of θ and of v_i; both start anew at every visit."""
        return (
            resolve_optimiser(self.optimiser, self.learning_rate),
            resolve_optimiser(self.optimiser, self.personal_learning_rate),
        )

    def steps(self, rows: int) -> int:
        """R, or those of the passes."""
        return steps_of(rows, self.local_iterations, self.epochs, self.batch_size)

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, METHOD, self.epochs)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ, v_i, the optimisers' memories); θ_S and 1/n."""
        sent = problem.family.location(given.natural)
        kept = None if given.personal is None else given.personal.natural
        own = sent if kept is None else problem.family.location(kept)
        first, second = self.steppers
        return Begun((sent, own, *first.init(sent), *second.init(own)), (sent, sent.new_tensor(1 / rows_of(problem))))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ and one of v_i; the value is -n (f_i(v_i) + λ/2 ||v_i - θ_S||²), in nats of all rows."""
        theta, own, *memory = begun.state
        sent, share = begun.fixed
        first, second = self.steppers
        half, loss = len(memory) // 2, mean_loss(at, share)

        def near(x: Tensor) -> Tensor:
            return loss(x) + 0.5 * self.proximal * (x - sent).square().sum()

        move, kept = first.step(tuple(memory[:half]), torch.func.grad(loss)(theta))
        gradient, value = torch.func.grad_and_value(near)(own)
        own_move, own_kept = second.step(tuple(memory[half:]), gradient)
        return (theta + move, own + own_move, *kept, *own_kept), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean at θ, and with its mean at v_i for the client to keep."""
        theta, own, *_ = begun.state
        relocate = problem.family.relocate
        return Ended(relocate(given.natural, theta), Personal(relocate(given.natural, own)))
