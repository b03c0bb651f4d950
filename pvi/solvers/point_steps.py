"""The local solver of FedAvg (McMahan et al. 2017, algorithm 1) and FedProx (Li et al. 2020, algorithm 2).

From the estimate θ_S that the server sent, step after step down on

    -(1/b) Σ_j log p(y_j | θ) + (μ/2) ||θ - θ_S||²

over mini-batches of b rows, in the coordinates x of the latents; μ = 0 is FedAvg.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.programs.program import num_rows
from pvi.solvers.checks import check_shared_mean_field, check_whole
from pvi.solvers.optimisers import Optimiser, resolve_optimiser
from pvi.solvers.personal import Given
from pvi.solvers.rule import Begun, Ended, Likelihood


@dataclass(frozen=True)
class PointSteps:
    """Gradient steps of a point estimate: the mean of q, whose standard deviations stay as they are.

    Either ``local_iterations`` steps a visit or ``epochs`` passes over the client's rows. ``proximal`` is μ. Nothing
    is kept from visit to visit. Raises ``ValueError`` for values out of range.
    """

    local_iterations: int | None = 20
    epochs: int | None = None
    batch_size: int | None = 20
    learning_rate: float = 0.01
    optimiser: str = "sgd"
    proximal: float = 0.0

    def __post_init__(self) -> None:
        if (self.local_iterations is None) == (self.epochs is None):
            raise ValueError(
                f"{self.method}: give local_iterations or epochs, one of them, got local_iterations="
                f"{self.local_iterations!r} and epochs={self.epochs!r}"
            )
        check_whole(self.method, local_iterations=self.local_iterations, epochs=self.epochs, batch_size=self.batch_size)
        if not 0 <= self.proximal < float("inf"):
            raise ValueError(f"FedProx: proximal (μ) is a finite number from 0, got {self.proximal!r}")
        _ = self.stepper

    @property
    def name(self) -> str:
        """``point-steps``."""
        return "point-steps"

    @property
    def method(self) -> str:
        """What messages call the method."""
        return "FedProx" if self.proximal else "FedAvg"

    @property
    def stepper(self) -> Optimiser:
        """The optimiser of a visit."""
        return resolve_optimiser(self.optimiser, self.learning_rate)

    @property
    def num_particles(self) -> int:
        """None: a step needs no noise."""
        return 0

    @property
    def by_layer(self) -> None:
        """Layers are nothing special."""
        return None

    def steps(self, rows: int) -> int:
        """R, or those of the passes; an incomplete last batch of a pass is skipped."""
        if self.epochs is None:
            assert self.local_iterations is not None  # checked when built
            return self.local_iterations
        return self.epochs * max(1, rows // (self.batch_size or rows))

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_shared_mean_field(problem, self.method, "averages every latent")
        plate = problem.program.sites.subsampling
        if self.epochs is not None and plate is not None:
            raise ValueError(
                f"client {problem.client!r}: {self.method} counts epochs in batches of its own batch_size, but the "
                f"model's plate subsamples {plate[2]} of {plate[1]} rows itself; give local_iterations, or leave the "
                "plate's subsample_size out"
            )

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ, the optimiser's memory); θ_S and 1/n, which makes the likelihood of all n rows a mean."""
        loc = problem.family.location(given.natural)
        rows = num_rows(problem.program, problem.batch)
        return Begun((loc, *self.stepper.init(loc)), (loc, loc.new_tensor(1 / rows)))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ; the value is n times the negative of what is minimised, in nats of all rows."""
        theta, *memory = begun.state
        sent, share = begun.fixed

        def loss(x: Tensor) -> Tensor:
            mean = -share * at(x, x)(x)  # the second argument is for layers drawn by row, of which there are none
            return mean + 0.5 * self.proximal * (x - sent).square().sum() if self.proximal else mean

        gradient, value = torch.func.grad_and_value(loss)(theta)
        move, kept = self.stepper.step(tuple(memory), gradient)
        return (theta + move, *kept), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q as it was sent with its mean at θ."""
        return Ended(problem.family.relocate(given.natural, begun.state[0]))
