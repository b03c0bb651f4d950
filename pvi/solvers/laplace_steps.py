"""The local solver of FOLA: online Laplace approximations with the server's posterior as the prior (Liu et al. 2021).

Per row, with Λ̄ = Λ/n for n the rows of all clients (the paper's precisions are averages over rows, ours count all of
them, so that q is the posterior of all rows):

    (16) J_n = -(1/b) Σ_j log p(y_j | θ) + λ ½ (θ - μ_S)ᵀ Λ̄_S (θ - μ_S) [+ λ ½ (θ - μ_p)ᵀ Λ̄_p (θ - μ_p) from round 2]
    (22) F̄_n = T⁻¹ Σ_t F̄_{n,t} over the T steps of the visit, or F̄_n at its end (offline)
    (24) Λ̄_n = ((r - 1)/r) Λ̄_S + (1/r) (F̄_n + Λ̄_p) in round r

The prior's precision Λ_p stands beside every F̄_n, so that it stays in: with equation (24) as printed it would be gone
after the first round, and a latent without curvature would have a precision of 0. In the first round the prior is the
model's own, N(μ_p, Λ_p⁻¹). As printed, equation (16) forgets its mean in the same way: μ_S holds nobody where it is, so
that over the rounds one client's answer goes to the maximum of the likelihood. The term in brackets keeps the pull to
μ_p, and with λ = 1 the answer is the MAP estimate.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from pvi.families.precision import natural_from_precision, precision, product_with
from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_number
from pvi.solvers.descent import Descent
from pvi.solvers.laplace_checks import check_laplace
from pvi.solvers.personal import Given, Personal
from pvi.solvers.points import check_epochs, rows_of
from pvi.solvers.rule import Begun, Ended, Likelihood
from pvi.solvers.step_curvature import (
    Curvature,
    Structure,
    eigenvalues,
    remark,
    slope,
    whole_curvature,
)

METHOD = "FOLA"


@dataclass(frozen=True)
class LaplaceSteps(Descent):
    """Steps down to a MAP estimate, and a Gaussian around it whose precision is the curvature along the way.

    Args:
        prior_weight: λ.
        prior_precision: Λ_p = this times I, in place of the model's own prior (whose means stay).
        structure: "diagonal", "full", or "e-full": a diagonal of the full matrix's eigenvalues in ascending order.
        curvature: see :mod:`~pvi.solvers.step_curvature`; ``None``: none, Λ stays.
        online: whether the curvature is averaged over the steps, or evaluated at the end over all rows.
        keep_local: whether the client keeps its answer, for whoever wants to look at it.
        keep_prior: whether the term in brackets is there.

    The rest is :class:`~pvi.solvers.descent.Descent`'s. Raises ``ValueError`` for values out of range.
    """

    prior_weight: float = 1.0
    prior_precision: float | None = None
    structure: Structure = "diagonal"
    curvature: Curvature | None = "empirical-fisher"
    online: bool = True
    keep_local: bool = False
    keep_prior: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(METHOD, prior_weight=self.prior_weight)
        for name, value in (("online", self.online), ("keep_prior", self.keep_prior)):
            if not isinstance(value, bool):  # any word would count as true
                raise ValueError(f"{METHOD}: {name} is True or False, got {value!r}")
        if self.prior_precision is not None:
            given = self.prior_precision
            if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
                raise ValueError(
                    f"{METHOD}: prior_precision is a finite number above 0, since it is what a latent without data "
                    f"has, got {given!r}"
                )
        if self.structure not in get_args(Structure):
            raise ValueError(f"{METHOD}: structure is one of {get_args(Structure)}, got {self.structure!r}")
        if self.curvature is not None and self.curvature not in get_args(Curvature):
            raise ValueError(f"{METHOD}: curvature is one of {get_args(Curvature)}, or None, got {self.curvature!r}")

    @property
    def name(self) -> str:
        """``laplace-steps``."""
        return "laplace-steps"

    @property
    def method(self) -> str:
        """What messages call the method."""
        return METHOD

    @property
    def by_layer(self) -> Literal["squares"] | None:
        """Layers make squared gradients of rows as cheap as one gradient."""
        return "squares" if self.structure == "diagonal" and self.curvature == "empirical-fisher" else None

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, q has the structure, and the likelihood is a sum over rows where that is needed."""
        check_laplace(problem, self.method, self.structure, self.curvature)
        check_epochs(problem, self.method, self.epochs)

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (θ, Σ_t F̄_{n,t}, the optimiser's memory), and (Λ, Λ m, 1/n_n, λ/n).

        Λ, m: of the Gaussian that holds θ, N(μ_S, Λ_S⁻¹), from the second round on times the prior.
        """
        family, rows = problem.family, rows_of(problem)
        theta = family.location(given.natural)
        first = given.setting.version == 0
        # Before the first round q's means say where to start, which may be at random; the prior's are the centre.
        own = family.location(given.setting.prior.natural)
        held = precision(family, given.natural)
        towards = product_with(held, own if first else theta)
        if self.keep_prior and not first:
            prior = self._prior(problem, given)
            held, towards = held + prior, towards + product_with(prior, own)
        matrix = self.structure != "diagonal"
        total = theta.new_zeros(len(theta), len(theta)) if matrix else torch.zeros_like(theta)
        if self.curvature is None or not self.online:
            total = theta.new_zeros(())
        weight = self.prior_weight * given.setting.row_share / rows
        return Begun(
            (theta, total, *self.stepper.init(theta)),
            (held, towards, theta.new_tensor(1 / rows), theta.new_tensor(weight)),
        )

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of θ; the value is the log likelihood of the client's rows as the step's have it, in nats."""
        theta, total, *memory = begun.state
        held, towards, share, weight = begun.fixed
        if self.curvature is not None and self.online:
            value, gradient, found = slope(problem.program, at, theta, share, self.curvature, self.structure)
            total = total + found
        else:
            gradient, value = torch.func.grad_and_value(at(theta, theta))(theta)
        pull = weight * (product_with(held, theta) - towards)
        move, kept = self.stepper.step(tuple(memory), pull - share * gradient)
        return (theta + move, total, *kept), value

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """N(θ, Λ_n⁻¹)."""
        family, setting = problem.family, given.setting
        theta, total = begun.state[:2]
        rows, step = rows_of(problem), setting.version + 1
        before = precision(family, given.natural)
        if self.curvature is None:
            after = before
        else:
            found = total / self.steps(rows)
            if not self.online:
                found = whole_curvature(problem, theta, self.batch_size, self.curvature, self.structure, begun.layers)
            if self.structure == "e-full":
                found = eigenvalues(found)
            after = ((step - 1) * before + (rows / setting.row_share) * found + self._prior(problem, given)) / step
        natural = natural_from_precision(family, theta, after)
        kept = Personal(natural) if self.keep_local else None
        rate = self.learning_rate if self.optimiser == "sgd" else 0.0
        message = remark(natural, after, self.curvature, rate, begun.fixed[3] * begun.fixed[0])
        return Ended(natural, kept, message=message)

    def _prior(self, problem: LocalProblem, given: Given) -> Tensor:
        """Λ_p."""
        own = precision(problem.family, given.setting.prior.natural)
        if self.prior_precision is None:
            return own
        flat = torch.full_like(own.diagonal() if own.ndim == 2 else own, self.prior_precision)
        return torch.diag(flat) if own.ndim == 2 else flat
