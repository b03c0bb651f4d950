"""FedNova's local solver (Wang et al. 2020, section 4), for plain gradient steps.

From the estimate θ_S that the server sent, τ_i steps down on the mean negative log likelihood of mini-batches, and the
answer

    θ_S + τ_eff (θ - θ_S) / τ_i,   τ_eff = Σ_i p_i τ_i

with the clients' shares p_i of the rows: an average of changes a step, so that clients of many steps do not count more.
Nobody knows τ_eff alone. At its first visit each client adds (p_i τ_i, p_i) beside q, and τ_eff is the ratio of the two
sums; before the first answers it is τ_i, which is FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_number, check_whole
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_count, check_points, mean_loss, rows_of, steps_of
from pvi.solvers.rule import Begun, Ended, Likelihood

METHOD = "FedNova"


@dataclass(frozen=True)
class NovaSteps:
    """The options of :func:`pvi.FedNova` that concern a client. Raises ``ValueError`` for values out of range.

    A client keeps nothing but that it has said its τ_i.
    """

    epochs: int = 1
    batch_size: int | None = 20
    learning_rate: float = 0.01

    name: ClassVar[str] = "nova-steps"
    num_particles: ClassVar[int] = 0
    by_layer: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_count(METHOD, epochs=self.epochs)
        check_whole(METHOD, batch_size=self.batch_size)
        check_number(METHOD, learning_rate=self.learning_rate)

    def steps(self, rows: int) -> int:
        """τ_i."""
        return steps_of(rows, None, self.epochs, self.batch_size)

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, METHOD, self.epochs)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ,); 1/n."""
        sent = problem.family.location(given.natural)
        return Begun((sent,), (sent.new_tensor(1 / rows_of(problem)),))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ; the value is -n f(θ), in nats of all rows."""
        (theta,), (share,) = begun.state, begun.fixed
        gradient, value = torch.func.grad_and_value(mean_loss(at, share))(theta)
        return (theta - self.learning_rate * gradient,), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean where τ_eff steps would have led; what the client has not said yet."""
        (theta,), setting = begun.state, given.setting
        made = self.steps(rows_of(problem))
        if setting.beside is not None:
            total, heard = setting.beside.to(theta)
            sent = problem.family.location(given.natural)
            theta = sent + total / heard / made * (theta - sent)
        said = None if given.personal is not None else theta.new_tensor([made, 1.0]) * setting.row_share
        return Ended(problem.family.relocate(given.natural, theta), Personal(None), said)
