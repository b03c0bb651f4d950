"""pFedMe's local solver (T. Dinh et al. 2020, algorithm 1): down the Moreau envelope of the client's loss.

From w_i = θ_S that the server sent, R times, each on a mini-batch with the mean negative log likelihood f_i,

    K times   θ_i ← θ_i - η_θ (∇f_i(θ_i) + λ (θ_i - w_i)),   then   w_i ← w_i - η λ (w_i - θ_i)

where θ_i starts a visit at θ_S and goes on from where the last mini-batch left it. λ (w_i - θ_i) is the gradient of
min_θ f_i(θ) + λ/2 ||θ - w_i||² in w_i once θ_i is that minimum.
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

METHOD = "pFedMe"


@dataclass(frozen=True)
class MoreauSteps:
    """The options of :func:`pvi.PFedMe` that concern a client. Raises ``ValueError`` for values out of range.

    ``proximal`` is λ. A client keeps θ_i, with the standard deviations of the q that it was sent around it; no visit
    starts from it.
    """

    proximal: float = 15.0
    local_iterations: int = 20
    inner_iterations: int = 5
    batch_size: int | None = 20
    learning_rate: float = 0.005
    personal_learning_rate: float = 0.01

    name: ClassVar[str] = "moreau-steps"
    num_particles: ClassVar[int] = 0
    by_layer: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_count(METHOD, local_iterations=self.local_iterations, inner_iterations=self.inner_iterations)
        check_whole(METHOD, batch_size=self.batch_size)
        check_number(METHOD, proximal=self.proximal, learning_rate=self.learning_rate,
                     personal_learning_rate=self.personal_learning_rate)  # fmt: skip

    def steps(self, rows: int) -> int:
        """R."""
        return self.local_iterations

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, METHOD)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (w_i, θ_i); 1/n."""
        sent = problem.family.location(given.natural)
        return Begun((sent, sent), (sent.new_tensor(1 / rows_of(problem)),))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """K steps of θ_i, one of w_i; the value is -n (f_i(θ_i) + λ/2 ||θ_i - w_i||²) before the last of the K."""
        (w, theta), (share,) = begun.state, begun.fixed
        loss = mean_loss(at, share)

        def near(x: Tensor) -> Tensor:
            return loss(x) + 0.5 * self.proximal * (x - w).square().sum()

        value = torch.zeros_like(share)
        for _ in range(self.inner_iterations):
            gradient, value = torch.func.grad_and_value(near)(theta)
            theta = theta - self.personal_learning_rate * gradient
        return (w - self.learning_rate * self.proximal * (w - theta), theta), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean at w_i, and with its mean at θ_i for the client to keep."""
        w, theta = begun.state
        relocate = problem.family.relocate
        return Ended(relocate(given.natural, w), Personal(relocate(given.natural, theta)))
