"""Online Laplace approximations with the server's posterior as everybody's prior, FOLA (Liu et al. 2021).

| part | choice |
| --- | --- |
| cavity rule | no deletion: the prior of a visit is the server's N(μ_S, Λ_S⁻¹) |
| solver | laplace steps: MAP under λ times that prior, precision from the curvature along the way |
| aggregator | experts: Σ π_n η_n |
| schedule | synchronous, undamped, or a random subset |
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from pvi.aggregators import Aggregator, Experts, LocationAverage
from pvi.algorithms.fedavg import ITERATIONS, attending
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import no_deletion
from pvi.families.mean_field import is_mean_field
from pvi.families.precision import is_full, natural_from_precision
from pvi.posterior import Posterior
from pvi.programs.guides import FullCovariance
from pvi.solvers import LaplaceSteps, LocalSteps
from pvi.solvers.step_curvature import Curvature, Structure


def FOLA(
    prior_weight: float = 1.0,
    prior_precision: float | None = None,
    structure: Structure = "diagonal",
    curvature: Curvature | None = "empirical-fisher",
    online: bool = True,
    aggregation: Literal["experts", "average"] = "experts",
    local_iterations: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = 32,
    learning_rate: float = 0.01,
    optimiser: str = "sgd",
    weights: Literal["rows", "equal"] = "rows",
    clients_per_round: int | None = None,
    subset_seed: int = 0,
    keep_local: bool = False,
    keep_prior: bool = True,
) -> Algorithm:
    """FOLA: clients' MAP estimates under the server's posterior, multiplied as Gaussians.

    Args:
        prior_weight: λ of a row's loss -log p(y_j | θ) + (λ/n) ½ (θ - μ_S)ᵀ Λ_S (θ - μ_S), n the rows of all clients.
        prior_precision: of every latent in the first round's prior; ``None``: the model's own. In units of all rows,
            as a prior of a Bayesian model is: n times that of the paper's averages. The prior's means are the model's.
        structure: "diagonal", "full" (one Gaussian of full covariance, small models only), or "e-full": a diagonal of
            the full curvature's eigenvalues in ascending order, whatever latents they belong to, as published.
        curvature: "empirical-fisher" (squared gradients of single rows, equation 21), "mean-gradient" (the squared
            gradient of a batch's mean, as public programs have it: b times too small where gradients are noise),
            "ggn" (generalised Gauss-Newton), "hessian", or ``None``: precisions stay, as in FedAvg and FedProx.
        online: the curvature is averaged over the steps (equation 22); else it is evaluated at the end over all rows.
        aggregation: "experts" (equation 12), or the "average" of means and of precisions.
        local_iterations: T, steps a visit; 20 where ``epochs`` is not given either.
        epochs: passes over the client's rows in place of T; an incomplete last batch is skipped.
        batch_size: b, rows a step, without replacement within an epoch; ``None``: all.
        learning_rate: of the steps.
        optimiser: "sgd" or "adam"; it starts anew at every visit.
        weights: π_n: "rows", each client's share of the rows of all who answered, or "equal".
        clients_per_round: clients that work in a round, drawn at random; ``None``: all.
        subset_seed: fixes who is drawn.
        keep_local: whether clients keep their answers: ``result.personal`` then has them.
        keep_prior: whether the loss has the prior's own pull, (λ/n) ½ (θ - μ_p)ᵀ Λ_p (θ - μ_p), in later rounds too.
            ``False``, as published: what holds θ is where it was, and round by round means go to the maximum of the
            likelihood.

    The precisions count the rows of all clients (n times the paper's averages), so that the run's ``posterior`` is an
    approximate posterior of all rows; its ELBO bounds the evidence of the model with its own prior. Where clients
    differ, the product of their answers is off the mode of the posterior, the further the more steps they take a visit.
    The estimate starts at the guide's means (the prior's without one). Raises ``ValueError`` for options out of range.

    >>> pvi.fit(model, clients, algorithm=pvi.FOLA(epochs=1, curvature="ggn"), rounds=20)  # doctest: +SKIP
    """
    if aggregation not in ("experts", "average"):
        raise ValueError(f"FOLA: aggregation is 'experts' or 'average', got {aggregation!r}")
    iterations = ITERATIONS if local_iterations is None and epochs is None else local_iterations
    rule = LaplaceSteps(
        iterations, epochs, batch_size, learning_rate, optimiser, prior_weight, prior_precision, structure, curvature,
        online, keep_local, keep_prior,
    )  # fmt: skip
    average = LocationAverage(weights, precision="averaged")
    aggregate: Aggregator = Experts(weights) if aggregation == "experts" else average
    return Algorithm(
        "fola", no_deletion, aggregate, schedule=attending("FOLA", clients_per_round, subset_seed), damping=1.0,
        rounds=20, fixed=True, solver=LocalSteps(rule), start=FirstPrior(prior_precision), factors=False,
        guide=FullCovariance() if structure == "full" else None, gaussian_prior=True,
    )  # fmt: skip


def variant(name: str, function: str, module: str, what: str, **changed: Any) -> Callable[..., Algorithm]:
    """FOLA under another name and with other defaults, as the documented ``function`` of a module."""

    def build(**options: Any) -> Algorithm:
        return replace(FOLA(**{**changed, **options}), name=name)

    whole = inspect.signature(FOLA)
    own = [part.replace(default=changed.get(key, part.default)) for key, part in whole.parameters.items()]
    build.__name__ = build.__qualname__ = function
    build.__module__, build.__doc__ = module, f"{what}; options as in :func:`pvi.FOLA`."
    build.__annotations__ = FOLA.__annotations__
    build.__signature__ = whole.replace(parameters=own)  # type: ignore[attr-defined]
    return build


FOLAOffline = variant(
    "fola-offline", "FOLAOffline", __name__, "FOLA with the curvature at the end of each visit", online=False
)
FOLAExperts = variant(
    "fola-experts", "FOLAExperts", __name__,
    "FOLA's product of experts without its prior in the loss, λ = 0", prior_weight=0.0,
)  # fmt: skip


@dataclass(frozen=True)
class FirstPrior:
    """q before the first round: the guide's means (the prior's without one), the prior's precision or this one."""

    prior_precision: float | None

    def __call__(self, prior: Posterior, guide: Posterior | None) -> Posterior:
        """See :data:`~pvi.algorithms.protocol.Start`."""
        family = prior.family
        if not is_mean_field(family) and not is_full(family):  # the solver says that it cannot do it
            return prior
        loc = family.location((prior if guide is None else guide).natural)
        natural = prior.natural
        if self.prior_precision is not None:
            flat = torch.full_like(loc, self.prior_precision)
            natural = natural_from_precision(family, loc, torch.diag(flat) if is_full(family) else flat)
        return Posterior(family, family.relocate(natural, loc), prior.coordinates)
