"""The family of a client's own latents, beside the shared one.

Latents with one value a client join a full-covariance shared family (a random intercept is strongly correlated with
the shared one); latents with one value a row stay independent, since a joint covariance would grow with the rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyro
import torch
from pyro import poutine
from torch import Tensor

from pvi.families import Coordinates
from pvi.families.extension import Extension, extend
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.guides import Approximation, Guide, MeanField, approximation
from pvi.programs.sites import Site, Sites


class Local(NamedTuple):
    """The family over shared and private latents, how it extends the shared one, and the first η of q(z | θ)."""

    approximation: Approximation
    extension: Extension
    conditional: Tensor | None


def localise(shared: Approximation, guide: Guide, sites: Sites, batch: Batch, like: Tensor) -> Local:
    """A client's local family; the shared one itself where it has no continuous latents of its own."""
    if not sites.private:
        return Local(shared, extend(shared.family, None, None), None)
    by_client = tuple(site for site in sites.private if not site.by_row)
    by_row = tuple(site for site in sites.private if site.by_row)
    own = _own(guide, sites, batch)
    if own is not None:
        extension = extend(shared.family, None, own.family)
        coordinates, start = own.coordinates, own.initial
    else:
        parts = [approximation(MeanField(), group, batch) if group else None for group in (by_client, by_row)]
        extension = extend(shared.family, *(part.family if part else None for part in parts))
        coordinates = Coordinates(tuple(site for part in parts if part for site in part.coordinates.sites))
        start = None
    whole = Coordinates(shared.coordinates.sites + coordinates.sites)
    conditional = _start(extension, start, like)
    return Local(Approximation(extension.local, whole, shared.initial), extension, conditional)


def _start(extension: Extension, start: Tensor | None, like: Tensor) -> Tensor:
    """η of the first q(z | θ): the guide's, else standard normal in unconstrained space, independent of θ."""
    local = extension.local
    if start is not None:
        return torch.cat([like.new_zeros(local.num_natural - start.shape[0]), start.to(like)])
    return extension.conditional(local.natural_from_free(like.new_zeros(local.num_free)))


def _own(guide: Guide, sites: Sites, batch: Batch) -> Approximation | None:
    """What a hand-written guide says about the private sites, if anything."""
    if not callable(guide):
        return None
    own = without(guide, sites.shared)
    with pyro.get_param_store().scope(), running(batch.dtype), seeded(0, batch.device), torch.no_grad():
        drawn = poutine.trace(own).get_trace(*batch.args, **batch.kwargs).nodes
    if not any(site.name in drawn for site in sites.private):
        return None
    return approximation(own, sites.private, batch)


def without(guide: Callable[..., Any], sites: tuple[Site, ...]) -> Callable[..., Any]:
    """A hand-written guide that keeps these sites to itself."""
    hidden: Callable[..., Any] = poutine.block(guide, hide=[site.name for site in sites])
    return hidden
