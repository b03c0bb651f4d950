"""Per-FedAvg's local solver, first order (Fallah et al. 2020, algorithm 1, FO): a model that is good after one step.

From w = θ_S that the server sent, τ times, on the mean negative log likelihoods f of two mini-batches D and D',

    θ' = w - α ∇f(w; D),   w ← w - β ∇f(θ'; D')

that is, two steps in turn: both take the gradient at a point, which is w and then θ'. The second derivative of f, by
which the exact gradient of f(θ') in w differs, is left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_number, check_whole
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_count, check_points, mean_loss, rows_of
from pvi.solvers.rule import Begun, Ended, Likelihood
from pvi.solvers.svi_step import likelihood_of_rows

METHOD = "Per-FedAvg"


@dataclass(frozen=True)
class MetaSteps:
    """The options of :func:`pvi.PerFedAvg` that concern a client. Raises ``ValueError`` for values out of range.

    A client keeps θ_S - α ∇f(θ_S) on all its rows, with the standard deviations of the q that it was sent around it;
    no visit starts from it.
    """

    local_iterations: int = 10
    batch_size: int | None = 20
    inner_learning_rate: float = 0.01
    learning_rate: float = 0.01

    name: ClassVar[str] = "meta-steps"
    num_particles: ClassVar[int] = 0
    by_layer: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_count(METHOD, local_iterations=self.local_iterations)
        check_whole(METHOD, batch_size=self.batch_size)
        check_number(METHOD, inner_learning_rate=self.inner_learning_rate, learning_rate=self.learning_rate)

    def steps(self, rows: int) -> int:
        """2 τ: of each pair one step adapts and one learns."""
        return 2 * self.local_iterations

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, METHOD)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (w, the point, whether it is θ'); 1/n."""
        sent = problem.family.location(given.natural)
        adapted = torch.zeros((), dtype=torch.bool, device=sent.device)
        return Begun((sent, sent, adapted), (sent.new_tensor(1 / rows_of(problem)),))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """From w to θ', or from θ' back to w, which learns; the value is -n f(point), in nats of all rows."""
        (w, point, adapted), (share,) = begun.state, begun.fixed
        gradient, value = torch.func.grad_and_value(mean_loss(at, share))(point)
        new = torch.where(adapted, w - self.learning_rate * gradient, w)
        point = torch.where(adapted, new, w - self.inner_learning_rate * gradient)
        return (new, point, ~adapted), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean at w, and with its mean at θ_S after a step on all rows for the client to keep."""
        relocate, sent = problem.family.relocate, problem.family.location(given.natural)
        uphill = torch.func.grad(likelihood_of_rows(problem, None, None))(sent)
        own = sent + self.inner_learning_rate * uphill / rows_of(problem)
        return Ended(relocate(given.natural, begun.state[0]), Personal(relocate(given.natural, own)))
