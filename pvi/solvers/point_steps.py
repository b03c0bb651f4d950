"""The local solver of FedAvg (McMahan et al. 2017, algorithm 1) and FedProx (Li et al. 2020, algorithm 2).

From the estimate θ_S that the server sent, step after step down on

    -(1/b) Σ_j log p(y_j | θ) + (μ/2) ||θ - θ_S||²

over mini-batches of b rows, in the coordinates x of the latents; μ = 0 is FedAvg.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.descent import Descent
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_points, mean_loss, rows_of
from pvi.solvers.rule import Begun, Ended, Likelihood


@dataclass(frozen=True)
class PointSteps(Descent):
    """Gradient steps of a point estimate: the mean of q, whose standard deviations stay as they are.

    ``proximal`` is μ; the rest is :class:`~pvi.solvers.descent.Descent`'s. With ``keep_local`` the client keeps where
    it ended as its personal posterior; nothing that it keeps is used again. Raises ``ValueError`` for values out of
    range.
    """

    proximal: float = 0.0
    keep_local: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.proximal < float("inf"):
            raise ValueError(f"FedProx: proximal (μ) is a finite number from 0, got {self.proximal!r}")

    @property
    def name(self) -> str:
        """``point-steps``."""
        return "point-steps"

    @property
    def method(self) -> str:
        """What messages call the method."""
        return "FedProx" if self.proximal else "FedAvg"

    @property
    def by_layer(self) -> None:
        """Layers are nothing special."""
        return None

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, self.method, self.epochs)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ, the optimiser's memory); θ_S and 1/n, which makes the likelihood of all n rows a mean."""
        loc = problem.family.location(given.natural)
        return Begun((loc, *self.stepper.init(loc)), (loc, loc.new_tensor(1 / rows_of(problem))))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ; the value is n times the negative of what is minimised, in nats of all rows."""
        theta, *memory = begun.state
        sent, share = begun.fixed
        mean = mean_loss(at, share)

        def loss(x: Tensor) -> Tensor:
            return mean(x) + 0.5 * self.proximal * (x - sent).square().sum() if self.proximal else mean(x)

        gradient, value = torch.func.grad_and_value(loss)(theta)
        move, kept = self.stepper.step(tuple(memory), gradient)
        return (theta + move, *kept), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q as it was sent with its mean at θ."""
        natural = problem.family.relocate(given.natural, begun.state[0])
        return Ended(natural, Personal(natural) if self.keep_local else None)
