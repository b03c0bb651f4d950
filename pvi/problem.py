"""Everything a run needs to know before its first round, checked: programs, family, prior, clients' problems."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pvi.assembly import Problem, Setup, assemble, same_kind, somewhere
from pvi.objectives import NUM_SAMPLES
from pvi.programs.agreement import check_same_sites
from pvi.programs.batch import Batch
from pvi.programs.batches import client_batches, pool
from pvi.programs.guides import Approximation, FullCovariance, Guide, MeanField, PriorFamily, approximation
from pvi.programs.hyperparameters import bind, find_hyperparameters
from pvi.programs.names import resolve_model
from pvi.programs.private import localise, without
from pvi.programs.program import Program, check_deterministic, check_prior_alone
from pvi.programs.sites import ProgramError, Sites, argument_names, discover

logger = logging.getLogger("pvi")
MANY = 500
"""Clients whose checks take longer than a second or two."""


def build_problem(
    model: Callable[..., Any] | str,
    clients: Any,
    guide: Any,
    device: torch.device,
    dtype: torch.dtype | None,
    *,
    learn: Sequence[str] | str | None = None,
    alpha: float = 0.0,
    pooled: bool = False,
    elbo_samples: int = NUM_SAMPLES,
) -> Problem:
    """Resolve and check model, data and guide; see :func:`pvi.fit` for the arguments and the errors."""
    function = resolve_model(model)
    batches = client_batches(clients, argument_names(function))
    first = next(iter(batches.values()))
    precision = dtype if dtype is not None else first.dtype
    if precision not in (torch.float32, torch.float64):
        raise ValueError(f"{precision} is not supported: pass dtype=torch.float32 or torch.float64")
    batches = {name: batch.to(device, precision) for name, batch in batches.items()}
    if len(batches) >= MANY:
        logger.info("looking at the model on the data of %d clients", len(batches))
    sites = {name: discover(function, batch, name) for name, batch in batches.items()}
    check_same_sites(sites)
    if pooled:
        batches = pool(batches, sites)
        sites = {name: discover(function, batch, name) for name, batch in batches.items()}
    first_name, first = next(iter(batches.items()))
    if not sites[first_name].shared:
        own = [site.name for site in (*sites[first_name].private, *sites[first_name].enumerated)]
        hint = f'; {own} are private, infer={{"pvi": "shared"}} would share them' if own else ""
        raise ProgramError(f"the model has no shared latent site: there is no posterior to compute together{hint}")
    like = torch.zeros((), dtype=precision, device=device)
    hyperparameters = find_hyperparameters(sites, learn, like)
    described = resolve_guide(guide)
    bound = bind(function, hyperparameters.values(hyperparameters.initial))
    shared = _shared(described, sites[first_name], first)
    parts = {name: localise(shared, described, sites[name], batch, like) for name, batch in batches.items()}
    for name, batch in batches.items():
        program = Program(bound, sites[name], parts[name].approximation.coordinates)
        check_deterministic(program, batch, name, somewhere(parts[name].approximation.family, like))
    observed = tuple(site.name for site in sites[first_name].observed)
    name = _name(model)
    setup = Setup(function, name, observed, batches, sites, shared, parts, hyperparameters, alpha, like, elbo_samples)
    shared_only = Program(bound, sites[first_name], parts[first_name].approximation.coordinates)
    check_prior_alone(shared_only, first, somewhere(shared.family, like))
    problem = assemble(setup, hyperparameters.initial)
    if hyperparameters.names and not same_kind(problem, assemble(setup, hyperparameters.initial + 0.05, problem.prior)):
        raise ProgramError(
            f"at the initial values of the hyperparameters {list(hyperparameters.names)} the model is of another kind "
            "(its prior in the guide's family, its likelihood generalised linear or conjugate) than beside them; start "
            "them elsewhere"
        )
    return problem


GUIDES: dict[str, Guide] = {"mean-field": MeanField(), "full": FullCovariance(), "conjugate": PriorFamily()}


def resolve_guide(guide: Any) -> Guide:
    """A guide by name (``None`` is mean field), or the object itself; raises for anything else."""
    if guide is None:
        return MeanField()
    if isinstance(guide, str):
        if guide not in GUIDES:
            raise ValueError(f"unknown guide {guide!r}; there are {', '.join(GUIDES)}, or a Pyro guide")
        return GUIDES[guide]
    if isinstance(guide, MeanField | FullCovariance | PriorFamily) or callable(guide):
        return guide
    raise TypeError(f"a guide is a name, pvi.FullCovariance or a Pyro program, got {type(guide).__name__}")


def _shared(guide: Guide, sites: Sites, batch: Batch) -> Approximation:
    if callable(guide) and (sites.private or sites.enumerated):
        guide = without(guide, (*sites.private, *sites.enumerated))
    return approximation(guide, sites.shared, batch)


def _name(model: Callable[..., Any] | str) -> str:
    if isinstance(model, str):
        return model
    return f"{getattr(model, '__module__', '?')}:{getattr(model, '__qualname__', type(model).__name__)}"
