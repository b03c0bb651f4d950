"""pFedBayes' local solver (Zhang et al. 2022, algorithm 1): a personal posterior, and a localised copy of the server's.

With v = (μ, ρ), σ = log(1 + exp ρ), R times in turn

    q_i: a step down on  -(n/b) (1/K) Σ_j Σ_k log p(y_j | θ_k) + ζ KL(q_i, w_i),   θ_k = μ + σ g_k,  g_k ~ N(0, I)
    w_i: a step down on  KL(q_i, w_i)

where q_i goes on from the client's last visit, w_i starts at the w that the server sent, and each step sees the other's
newest value.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pvi.families.mean_field import divergence, inverse_softplus, natural_from_moments, softplus
from pvi.objectives import LocalProblem, each
from pvi.programs.program import num_rows
from pvi.solvers.checks import check_number, check_shared_mean_field, check_whole
from pvi.solvers.draws import noise_generator
from pvi.solvers.optimisers import Optimiser, resolve_optimiser
from pvi.solvers.personal import Given, Personal
from pvi.solvers.rule import Begun, Ended, Likelihood

KLScale = float | Literal["paper", "iterations", "batch"]
METHOD = "pFedBayes"
FIRST = 0x5DEECE66D
"""Keeps the draws of first values apart from those of the steps."""


@dataclass(frozen=True)
class TwoLevel:
    """The options of :func:`pvi.PFedBayes` that concern a client. Raises ``ValueError`` for values out of range.

    ``zeta`` 0 takes the prior off: q_i follows its client's likelihood alone.
    ``exact`` solves the localised problem min KL(q_i, w_i) as it is solved best, w_i = q_i: the prior of the R steps
    then is the server's w, and the answer q_i.
    """

    zeta: float = 10.0
    local_iterations: int = 20
    num_particles: int = 5
    batch_size: int | None = 100
    learning_rate: float = 0.001
    global_learning_rate: float = 0.001
    optimiser: str = "adam"
    keep_optimisers: bool = True
    kl_scale: KLScale = "paper"
    personal_init: Literal["global", "draw"] = "global"
    exact: bool = False
    local_reparameterisation: bool = False
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.local_iterations is None or self.num_particles is None:
            raise ValueError("pFedBayes: local_iterations and num_particles must be whole numbers, got None")
        check_whole(
            METHOD, local_iterations=self.local_iterations, num_particles=self.num_particles, batch_size=self.batch_size
        )
        check_number(METHOD, zeta=self.zeta)
        for name in ("keep_optimisers", "local_reparameterisation"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"pFedBayes: {name} is True or False, got {getattr(self, name)!r}")
        if self.personal_init not in ("global", "draw"):
            raise ValueError(f"pFedBayes: personal_init is 'global' or 'draw', got {self.personal_init!r}")
        if isinstance(self.kl_scale, str):
            if self.kl_scale not in ("paper", "iterations", "batch"):
                raise ValueError(
                    f"pFedBayes: kl_scale is 'paper', 'iterations', 'batch' or a number, got {self.kl_scale!r}"
                )
        else:
            check_number(METHOD, kl_scale=self.kl_scale)
        _ = self.personal_optimiser, self.global_optimiser

    @property
    def name(self) -> str:
        """``two-level``."""
        return "two-level"

    @property
    def by_layer(self) -> Literal["noise"] | None:
        """Layers are drawn row by row where that is asked for."""
        return "noise" if self.local_reparameterisation else None

    @property
    def personal_optimiser(self) -> Optimiser:
        """That of q_i."""
        return resolve_optimiser(self.optimiser, self.learning_rate, self.epsilon)

    @property
    def global_optimiser(self) -> Optimiser:
        """That of w_i."""
        return resolve_optimiser(self.optimiser, self.global_learning_rate, self.epsilon)

    def kl_weight(self, rows: int, rows_a_step: int) -> float:
        """What KL(q_i, w_i) is multiplied by, the likelihood being that of all n rows."""
        if isinstance(self.kl_scale, str):
            scale = rows / rows_a_step  # the batch's sum of log likelihoods, as it is, against ...
            scales = {"paper": 1.0, "batch": scale, "iterations": scale / self.local_iterations}
            return self.zeta * scales[self.kl_scale]
        return self.zeta * self.kl_scale

    def steps(self, rows: int) -> int:
        """R."""
        return self.local_iterations

    def check(self, problem: LocalProblem) -> None:
        """The latents are shared, and q is mean field."""
        check_shared_mean_field(problem, METHOD, "makes every latent personal already")

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """The state (v, v_w, the optimisers' memories), and ζ's weight."""
        w, personal = parameters(problem, given.natural), given.personal
        if personal is None or personal.natural is None:
            v = _first(w, self.personal_init, given.seed)
        else:
            v = parameters(problem, personal.natural)
        memory = () if personal is None or not self.keep_optimisers else personal.memory
        if not memory:
            memory = (*self.personal_optimiser.init(v), *self.global_optimiser.init(w))
        weight = self.kl_weight(num_rows(problem.program, problem.batch), rows_a_step)
        return Begun((v, w, *memory), (w.new_tensor(weight),))

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """One step of q_i, and one of w_i towards it; the value is -Ω in nats."""
        v, w, *memory = begun.state
        (weight,), size = begun.fixed, problem.family.size
        half = len(memory) // 2
        w_sd = softplus(w[1])

        def omega(loc: Tensor, sd: Tensor) -> Tensor:
            x = loc + sd * numbers[..., :size]
            x = x if numbers.shape[-1] == size else torch.cat([x, numbers[..., size:]], -1)
            expected = each(at(loc, sd), x, problem.batch.num_rows).mean()
            return weight * divergence(loc, sd, w[0], w_sd) - expected

        gradient, value = torch.func.grad_and_value(omega, argnums=(0, 1))(v[0], softplus(v[1]))
        move, own = self.personal_optimiser.step(tuple(memory[:half]), by_rho(gradient, v[1]))
        v = v + move
        if self.exact:
            return (v, w, *own, *memory[half:]), -value

        sd = softplus(v[1])

        def omega_w(loc: Tensor, w_sd: Tensor) -> Tensor:
            return divergence(v[0], sd, loc, w_sd)

        slope = torch.func.grad(omega_w, argnums=(0, 1))(w[0], w_sd)
        move, kept = self.global_optimiser.step(tuple(memory[half:]), by_rho(slope, w[1]))
        return (v, w + move, *own, *kept), -value

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """w_i, and q_i for the client to keep."""
        v, w, *memory = begun.state
        personal = natural_from_moments(problem.family, v[0], softplus(v[1]))
        answer = personal if self.exact else natural_from_moments(problem.family, w[0], softplus(w[1]))
        if not self.exact and self.global_learning_rate == 0:
            answer = given.natural  # as it came, without rounding
        return Ended(answer, Personal(personal, tuple(memory)))


def parameters(problem: LocalProblem, natural: Tensor) -> Tensor:
    """v = (μ, ρ) ``[2, size]`` of η, σ = log(1 + exp ρ)."""
    loc, variance = problem.family.moments(natural)
    return torch.stack([loc, inverse_softplus(variance.sqrt())])


def by_rho(gradient: tuple[Tensor, Tensor], rho: Tensor) -> Tensor:
    """The gradient in (μ, ρ) ``[2, size]`` from that in (μ, σ): dσ/dρ = 1 / (1 + exp -ρ)."""
    by_loc, by_sd = gradient
    return torch.stack([by_loc, by_sd * torch.sigmoid(rho)])


def _first(w: Tensor, start: Literal["global", "draw"], seed: int) -> Tensor:
    """v at a client's first visit."""
    if start == "global":
        return w
    generator = noise_generator(seed ^ FIRST, w.device)
    drawn = torch.randn(w[0].shape, generator=generator, dtype=w.dtype, device=w.device)
    return torch.stack([w[0] + softplus(w[1]) * drawn, w[1]])
