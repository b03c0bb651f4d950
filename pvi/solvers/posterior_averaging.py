"""FedPA's local solver (Al-Shedivat et al. 2021, algorithms 3 and 4): what gradient steps say of a client's posterior.

From the estimate θ_S that the server sent, plain gradient steps on the mean negative log likelihood of mini-batches;
after ``burn_in`` of them, each mean of ``steps_per_sample`` iterates is a sample. With ℓ of them, their mean x̄ and
covariance S_ℓ (divisor ℓ - 1), the client's answer is θ_S - Δ,

    Δ = Σ̂⁻¹ (θ_S - x̄),   Σ̂ = ρ_ℓ I + (1 - ρ_ℓ) S_ℓ,   ρ_ℓ = 1 / (1 + (ℓ - 1) ρ)

S_ℓ has rank ℓ - 1: with Woodbury's identity only an ℓ x ℓ system is solved.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_number, check_whole
from pvi.solvers.personal import Given
from pvi.solvers.points import check_count, check_points, mean_loss, rows_of
from pvi.solvers.rule import Begun, Ended, Likelihood

METHOD = "FedPA"


@dataclass(frozen=True)
class SampleSteps:
    """The options of :func:`pvi.FedPA` that concern a client. Raises ``ValueError`` for values out of range.

    Nothing is kept from visit to visit.
    """

    num_samples: int = 5
    steps_per_sample: int = 5
    burn_in: int = 5
    shrinkage: float = 0.1
    batch_size: int | None = 20
    learning_rate: float = 0.01
    burn_in_rounds: int = 0

    name: ClassVar[str] = "sample-steps"
    num_particles: ClassVar[int] = 0
    by_layer: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_count(METHOD, num_samples=self.num_samples, steps_per_sample=self.steps_per_sample)
        check_whole(METHOD, batch_size=self.batch_size)
        for name in ("burn_in", "burn_in_rounds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{METHOD}: {name} must be a whole number from 0, got {value!r}")
        check_number(METHOD, shrinkage=self.shrinkage, learning_rate=self.learning_rate)

    def steps(self, rows: int) -> int:
        """Those of the burn-in and those of the samples."""
        return self.burn_in + self.num_samples * self.steps_per_sample

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_points(problem, METHOD)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ, the samples ``[ℓ, size]`` so far, the steps so far); 1/n, and the samples' numbers ``[ℓ]``."""
        sent = problem.family.location(given.natural)
        numbers = torch.arange(self.num_samples, device=sent.device)
        state = (sent, sent.new_zeros(self.num_samples, len(sent)), torch.zeros_like(numbers[0]))
        return Begun(state, (sent.new_tensor(1 / rows_of(problem)), numbers))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ, counted in its sample; the value is -n f(θ), in nats of all rows."""
        theta, samples, made = begun.state
        share, index = begun.fixed
        gradient, value = torch.func.grad_and_value(mean_loss(at, share))(theta)
        theta = theta - self.learning_rate * gradient
        # Below 0 in the burn-in: no sample's number.
        sample = torch.div(made - self.burn_in, self.steps_per_sample, rounding_mode="floor")
        grown = samples + theta / self.steps_per_sample
        samples = torch.where((index == sample)[:, None], grown, samples)
        return (theta, samples, made + 1), -value / share

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """q with its mean at θ_S - Δ; in the first ``burn_in_rounds`` at the last iterate, as in FedAvg."""
        theta, samples, _ = begun.state
        if given.setting.version >= self.burn_in_rounds:
            sent = problem.family.location(given.natural)
            theta = sent - posterior_delta(sent, samples, self.shrinkage)
        return Ended(problem.family.relocate(given.natural, theta))


def posterior_delta(sent: Tensor, samples: Tensor, shrinkage: float) -> Tensor:
    """Δ ``[size]`` of samples ``[ℓ, size]``, ``shrinkage`` being ρ; not finite where the samples are not.

    With centred samples X, a = ρ_ℓ and b = (1 - ρ_ℓ) / (ℓ - 1):
    (a I + b X'X)⁻¹ v = (v - b X' (a I + b X X')⁻¹ X v) / a.
    """
    count, mean = len(samples), samples.mean(0)
    gap = sent - mean
    if count == 1:  # ρ_1 = 1
        return gap
    a = 1 / (1 + (count - 1) * shrinkage)
    b = (1 - a) / (count - 1)
    centred = samples - mean
    small = a * torch.eye(count, dtype=sent.dtype, device=sent.device) + b * (centred @ centred.mT)
    solved, _ = torch.linalg.solve_ex(small, centred @ gap)
    return (gap - b * (solved @ centred)) / a
