"""A hand-written guide as a product of families: each site's distribution recovered from its density."""

from collections.abc import Callable
from typing import Any

import pyro
import torch
from pyro import poutine
from torch import Tensor

from pvi.families import is_gaussian
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.recover import recover, support_points
from pvi.programs.site_families import SiteFamily, of_distribution, unwrapped
from pvi.programs.sites import ProgramError, Site, is_random


def read_guide(
    guide: Callable[..., Any], shared: tuple[Site, ...], batch: Batch
) -> list[tuple[str, SiteFamily, Tensor]]:
    """Name, family and η of every site that the guide samples, in its order.

    Raises :class:`~pvi.programs.sites.ProgramError` where the guide lacks a site, has an extra one, depends on a random
    value, or draws from a distribution of no family.
    """
    first, second = _trace(guide, batch, seed=0), _trace(guide, batch, seed=1)
    wanted = {site.name: site for site in shared}
    missing, extra = [name for name in wanted if name not in first], [name for name in first if name not in wanted]
    if missing or extra:
        hint = (
            '; an autoguide is not needed: guide=None is AutoNormal, guide="full" AutoMultivariateNormal'
            if any(name.endswith("_unconstrained") or name.startswith("_") for name in extra)
            else ""
        )
        raise ProgramError(
            f"the guide and the model disagree: the guide lacks the sites {missing} and has the extra sites {extra}; "
            f"it must sample exactly the shared latents {list(wanted)}{hint}"
        )
    found = []
    for name in first:
        member, natural = _member(wanted[name], first[name], batch.dtype)
        again = _member(wanted[name], second[name], batch.dtype)[1]
        if not torch.allclose(natural, again):
            raise ProgramError(
                f"guide site {name!r} depends on a random value; PVI's guides are products of independent "
                'sites (for correlated sites use guide="full" or pvi.FullCovariance)'
            )
        found.append((name, member, natural))
    return found


def _trace(guide: Callable[..., Any], batch: Batch, seed: int) -> dict[str, Any]:
    # One seed for both traces: initial values drawn at random must not differ between them.
    store, drawing = pyro.get_param_store().scope(), _Seeded(seed, batch.device)
    with store, running(batch.dtype), seeded(0, batch.device), torch.no_grad(), drawing:
        nodes = poutine.trace(guide).get_trace(*batch.args, **batch.kwargs).nodes
    return {name: node for name, node in nodes.items() if is_random(node) and not node["is_observed"]}


class _Seeded(poutine.messenger.Messenger):
    """Draw every sample site from its own stream: parameters initialised at random stay the same."""

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        self.seed = seed
        self.device = device

    def _pyro_sample(self, msg: Any) -> None:
        with seeded(self.seed, self.device):
            msg["value"] = msg["fn"](*msg["args"], **msg["kwargs"])
        msg["done"] = True


def _member(site: Site, node: Any, dtype: torch.dtype) -> tuple[SiteFamily, Tensor]:
    fn, value = node["fn"], node["value"]
    if tuple(value.shape) != site.shape:
        raise ProgramError(f"guide site {site.name!r} has shape {tuple(value.shape)}, the model's has {site.shape}")
    base = fn
    while isinstance(base, torch.distributions.Independent):
        base = base.base_dist
    _check_measure(site, fn, base)
    member = of_distribution(site, base)
    coordinates, family = member
    like = torch.zeros((), dtype=dtype, device=value.device)
    inside = is_gaussian(family) or site.support.check(coordinates.constrain(support_points(family, like))).all()
    if not bool(inside):
        raise ProgramError(
            f"guide site {site.name!r}: {type(base).__name__} has values outside the model's support {site.support}"
        )

    def log_density(x: Tensor) -> Tensor:
        return fn.log_prob(coordinates.constrain(x)).sum() + coordinates.log_abs_det_jacobian(x)

    with running(dtype):
        found = recover(family, log_density, like)
    if found.exact:
        return member, found.natural
    if is_gaussian(family):
        raise ProgramError(
            f"guide site {site.name!r}: {type(base).__name__} is not a Gaussian in the site's unconstrained space "
            f"(residual {found.residual:.2g}); use a Normal or MultivariateNormal, their transform by "
            f"biject_to({site.support}) for a constrained site, or a Gamma, Beta or Dirichlet on its own support"
        )
    raise ProgramError(
        f"guide site {site.name!r}: {type(base).__name__} is no proper member of {family} (residual "
        f"{found.residual:.2g}); probabilities must be positive, parameters finite"
    )


def _check_measure(site: Site, fn: Any, base: Any) -> None:
    """A density and a probability cannot stand for each other, nor can laws over other sets of values."""
    same = repr(unwrapped(fn.support)) == repr(unwrapped(site.support))
    if (site.is_discrete or fn.support.is_discrete) and not same:
        raise ProgramError(
            f"guide site {site.name!r}: {type(base).__name__} with values in {fn.support} cannot stand for the model's "
            f"{site.distribution} with values in {site.support}"
        )
