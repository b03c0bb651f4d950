"""SCAFFOLD's local solver (Karimireddy et al. 2020, algorithm 1, option II).

From the estimate θ_S that the server sent, with the client's control variate c_i and the server's c, K steps

    θ ← θ - η (∇f_i(θ) - c_i + c),   then   c_i⁺ = c_i - c + (θ_S - θ_K) / (K η)

where f_i is the mean negative log likelihood of a mini-batch. c is the mean of all clients' c_i: each adds its
(c_i⁺ - c_i) / N beside q. Both are 0 at first.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_points, check_positive, check_steps, mean_loss, rows_of, steps_of
from pvi.solvers.rule import Begun, Ended, Likelihood

METHOD = "SCAFFOLD"


@dataclass(frozen=True)
class ScaffoldSteps:
    """The options of :func:`pvi.SCAFFOLD` that concern a client. Raises ``ValueError`` for values out of range.

    A client keeps c_i ``[size]`` and no posterior.
    """

    local_iterations: int | None = 20
    epochs: int | None = None
    batch_size: int | None = 20
    learning_rate: float = 0.01

    name: ClassVar[str] = "scaffold-steps"
    num_particles: ClassVar[int] = 0
    by_layer: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_steps(METHOD, self.local_iterations, self.epochs, self.batch_size)
        check_positive(METHOD, learning_rate=self.learning_rate)

    def steps(self, rows: int) -> int:
        """K."""
        return steps_of(rows, self.local_iterations, self.epochs, self.batch_size)

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, METHOD, self.epochs)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ,); c - c_i and 1/n."""
        loc = problem.family.location(given.natural)
        own, whole = _variates(given, loc)
        return Begun((loc,), (whole - own, loc.new_tensor(1 / rows_of(problem))))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ; the value is -n f_i(θ), in nats of all rows."""
        (theta,), (correction, share) = begun.state, begun.fixed
        gradient, value = torch.func.grad_and_value(mean_loss(at, share))(theta)
        return (theta - self.learning_rate * (gradient + correction),), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean at θ_K; c_i⁺ to keep, and the change of the mean of all c_i."""
        (theta,) = begun.state
        sent = problem.family.location(given.natural)
        own, whole = _variates(given, sent)
        new = own - whole + (sent - theta) / (self.steps(rows_of(problem)) * self.learning_rate)
        change = (new - own) / given.setting.num_clients
        return Ended(problem.family.relocate(given.natural, theta), Personal(None, (new,)), change)


def _variates(given: Given, like: Tensor) -> tuple[Tensor, Tensor]:
    """c_i and c, each ``[size]``."""
    own = torch.zeros_like(like) if given.personal is None else given.personal.memory[0].to(like)
    whole = torch.zeros_like(like) if given.setting.beside is None else given.setting.beside.to(like)
    return own, whole
