"""Personalised federated learning by variational inference, pFedBayes (Zhang et al. 2022).

| part | choice |
| --- | --- |
| cavity rule | no deletion: the client's prior is the server's w |
| likelihood | tempered by 1/ζ: -E[log p(y_i given θ)] + ζ KL(q_i, w) |
| solver | two level: R times a step of the personal q_i, and of the localised w_i towards it |
| aggregator | average of v = (μ, ρ), or of moments |
| schedule | all clients work, a random subset of S is averaged |
"""

from dataclasses import dataclass
from typing import Literal

import torch

from pvi.aggregators import Aggregator, MomentAverage, ParameterAverage
from pvi.aggregators.average import check_smoothing
from pvi.algorithms.protocol import Algorithm, Energy
from pvi.cavities import no_deletion
from pvi.families.mean_field import is_mean_field, natural_from_moments, softplus
from pvi.posterior import Posterior
from pvi.schedules import SubsetAfterTraining
from pvi.solvers import LocalSteps, TwoLevel
from pvi.solvers.two_level import KLScale


def PFedBayes(
    zeta: float = 10.0,
    local_iterations: int = 20,
    num_particles: int = 5,
    subset: int = 10,
    smoothing: float = 1.0,
    kl_scale: KLScale = "paper",
    average: Literal["parameters", "moments"] = "parameters",
    initial_rho: float | None = -2.5,
    batch_size: int | None = 100,
    learning_rate: float = 0.001,
    global_learning_rate: float = 0.001,
    optimiser: str = "adam",
    keep_optimisers: bool = True,
    personal_init: Literal["global", "draw"] = "global",
    local_reparameterisation: bool = False,
    subset_seed: int = 0,
    epsilon: float = 1e-8,
) -> Algorithm:
    """pFedBayes: a posterior of its own for every client, and a global one that is their common prior.

    Args:
        zeta: ζ, how much a client's posterior is drawn to the global one; the likelihood counts 1/ζ.
            0: the prior is off.
        local_iterations: R, alternating steps of q_i and w_i a visit.
        num_particles: K, draws of θ a step.
        subset: S, clients whose w_i are averaged, drawn at random after all have worked; all where there are fewer.
        smoothing: β in v ← (1 - β) v + β mean v_i; 1 is none.
        kl_scale: of ζ KL beside the likelihood of all n rows, (n/b) times the batch's. "paper": 1. Public programs
            write other sums: the batch's log likelihoods as they are beside ζ KL / R, "iterations", which is
            (n/b) / R here, or beside ζ KL, "batch", which is n/b. Or a number.
        average: what the server does: "parameters" (v, as published), or "moments", the closed-form optimum of
            min_w Σ KL(q_i, w). There the localised problem is solved exactly too: clients send q_i, and w_i is the w
            that they were sent: ``global_learning_rate`` then has no part.
        initial_rho: ρ of the first w, σ = log(1 + exp ρ). Its means are the guide's, else the prior's. ``None``: the
            guide's or the prior's own σ.
        batch_size: b, rows a step, without replacement within an epoch; ``None``: all.
        learning_rate, global_learning_rate: η_1 of q_i and η_2 of w_i.
        optimiser: "adam" or "sgd", for both.
        keep_optimisers: whether Adam's moments last from visit to visit.
        personal_init: q_i at a client's first visit: "global", the w that it is sent, or "draw", with means drawn
            from that.
        local_reparameterisation: draw layers' pre-activations row by row instead of weights: the same objective with
            less noise, and faster.
        subset_seed: fixes the subsets; the seed of a run does not change them.
        epsilon: Adam's.

    The run's ``posterior`` is w; ``result.personal`` has every q_i; the reported free energy is
    Σ_i (E_{q_i}[log p(y_i | θ)] - ζ KL(q_i, w)), at ``kl_scale="paper"`` minus N times the published F(w). Raises
    ``ValueError`` for options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.PFedBayes(zeta=1.0), rounds=100)  # doctest: +SKIP
    """
    if average not in ("parameters", "moments"):
        raise ValueError(f"pFedBayes: average is 'parameters' or 'moments', got {average!r}")
    if initial_rho is not None and not -15 < initial_rho < 15:
        raise ValueError(f"pFedBayes: initial_rho lies between -15 and 15 (σ = log(1 + exp ρ)), got {initial_rho!r}")
    beta = check_smoothing(smoothing)
    aggregate: Aggregator = ParameterAverage(beta) if average == "parameters" else MomentAverage(beta)
    rule = TwoLevel(
        zeta, local_iterations, num_particles, batch_size, learning_rate, global_learning_rate, optimiser,
        keep_optimisers, kl_scale, personal_init, average == "moments", local_reparameterisation, epsilon,
    )  # fmt: skip
    return Algorithm(
        "pfedbayes", no_deletion, aggregate, schedule=SubsetAfterTraining(subset, subset_seed), damping=1.0,
        rounds=100, fixed=True, solver=LocalSteps(rule), start=FirstGlobal(initial_rho),
        energy=Energy(personal=True, weight=zeta), factors=False,
    )  # fmt: skip


@dataclass(frozen=True)
class FirstGlobal:
    """w before the first round: the guide's means (the prior's without one), σ = log(1 + exp ρ) for every latent.

    Where ``rho`` is ``None``, the standard deviations are the guide's or the prior's too.
    """

    rho: float | None

    def __call__(self, prior: Posterior, guide: Posterior | None) -> Posterior:
        """See :data:`~pvi.algorithms.protocol.Start`."""
        begun = prior if guide is None else guide
        if self.rho is None or not is_mean_field(begun.family):  # of another family the solver says that it cannot
            return begun
        loc, _ = begun.family.moments(begun.natural)
        scale = softplus(torch.full_like(loc, self.rho))
        return Posterior(begun.family, natural_from_moments(begun.family, loc, scale), begun.coordinates)
