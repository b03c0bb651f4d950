"""Which family stands for which shared sites: mean field, full covariance, or read from a hand-written guide."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyro
import torch
from pyro import poutine
from torch import Tensor

from pvi.families import Coordinates, DiagonalGaussian, Family, FullGaussian, Product, SiteCoordinates, site_coordinates
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.recover import recover
from pvi.programs.sites import ProgramError, Site, is_random

MAX_FULL = 8192
"""The largest full covariance: half a gigabyte a copy in double precision."""


@dataclass(frozen=True)
class MeanField:
    """Every shared site a diagonal Gaussian in its unconstrained space."""


@dataclass(frozen=True)
class FullCovariance:
    """One full-covariance Gaussian over each group of sites; no group named means one over all sites.

    >>> FullCovariance(("weights", "bias"))  # other sites stay mean field
    FullCovariance(groups=(('weights', 'bias'),))
    """

    groups: tuple[tuple[str, ...], ...] = ()

    def __init__(self, *groups: Sequence[str]) -> None:
        if any(isinstance(group, str) for group in groups):
            raise TypeError(f"FullCovariance takes groups of site names: pvi.FullCovariance({groups})")
        object.__setattr__(self, "groups", tuple(tuple(group) for group in groups))


class Approximation(NamedTuple):
    """The family of q, its coordinates, and where local solvers start (``None``: at the q that they are sent)."""

    family: Product
    coordinates: Coordinates
    initial: Tensor | None


Guide = MeanField | FullCovariance | Callable[..., Any]


def approximation(guide: Guide, shared: tuple[Site, ...], batch: Batch) -> Approximation:
    """The approximation that a guide describes for these shared sites.

    Raises :class:`~pvi.programs.sites.ProgramError` where the guide lacks a site, has an extra one, or is not made
    of exponential-family distributions.
    """
    if isinstance(guide, MeanField):
        return _grouped(tuple((site.name,) for site in shared), shared, full=False)
    if isinstance(guide, FullCovariance):
        return _full(guide, shared)
    return _read(guide, shared, batch)


def _coordinates(site: Site) -> SiteCoordinates:
    return site_coordinates(site.name, site.shape, site.support)


def _grouped(groups: tuple[tuple[str, ...], ...], shared: tuple[Site, ...], full: bool) -> Approximation:
    by_name = {site.name: _coordinates(site) for site in shared}
    members: list[Family] = []
    for group in groups:
        size = sum(by_name[name].size for name in group)
        if (full or len(group) > 1) and size > MAX_FULL:
            raise ProgramError(
                f"a full covariance over {size} reals (sites {list(group)}) needs {8 * size**2 / 1e9:.0f} GB a copy; "
                "use guide=None (mean field), or pvi.FullCovariance over smaller groups"
            )
        members.append(FullGaussian(size) if full or len(group) > 1 else DiagonalGaussian(size))
    coordinates = Coordinates(tuple(by_name[name] for group in groups for name in group))
    return Approximation(Product(tuple("+".join(group) for group in groups), tuple(members)), coordinates, None)


def _full(guide: FullCovariance, shared: tuple[Site, ...]) -> Approximation:
    names = tuple(site.name for site in shared)
    if not guide.groups:
        return _grouped((names,), shared, full=True)
    listed = [name for group in guide.groups for name in group]
    unknown = [name for name in listed if name not in names]
    if unknown or len(set(listed)) < len(listed):
        raise ProgramError(
            f"FullCovariance groups {guide.groups} must name each shared site at most once; "
            f"unknown: {unknown}, shared sites: {list(names)}"
        )
    full = _grouped(guide.groups, shared, full=True)
    rest = tuple((name,) for name in names if name not in listed)
    if not rest:
        return full
    mean_field = _grouped(rest, shared, full=False)
    return Approximation(
        Product(full.family.names + mean_field.family.names, full.family.members + mean_field.family.members),
        Coordinates(full.coordinates.sites + mean_field.coordinates.sites),
        None,
    )


def _read(guide: Callable[..., Any], shared: tuple[Site, ...], batch: Batch) -> Approximation:
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
    members, initial = [], []
    for name in first:
        family, natural = _member(wanted[name], first[name], batch.dtype)
        again = _member(wanted[name], second[name], batch.dtype)[1]
        if not torch.allclose(natural, again):
            raise ProgramError(
                f"guide site {name!r} depends on a random value; PVI's guides are products of independent "
                'sites (for correlated sites use guide="full" or pvi.FullCovariance)'
            )
        members.append(family)
        initial.append(natural)
    coordinates = Coordinates(tuple(_coordinates(wanted[name]) for name in first))
    return Approximation(Product(tuple(first), tuple(members)), coordinates, torch.cat(initial))


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


def _member(site: Site, node: Any, dtype: torch.dtype) -> tuple[Family, Tensor]:
    coordinates, fn = _coordinates(site), node["fn"]
    if tuple(node["value"].shape) != site.shape:
        raise ProgramError(
            f"guide site {site.name!r} has shape {tuple(node['value'].shape)}, the model's has {site.shape}"
        )
    base = fn
    while isinstance(base, torch.distributions.Independent):
        base = base.base_dist
    correlated = isinstance(
        base, torch.distributions.MultivariateNormal | torch.distributions.LowRankMultivariateNormal
    )
    family: Family = FullGaussian(coordinates.size) if correlated else DiagonalGaussian(coordinates.size)

    def log_density(u: Tensor) -> Tensor:
        return fn.log_prob(coordinates.constrain(u)).sum() + coordinates.log_abs_det_jacobian(u)

    with running(dtype):
        found = recover(family, log_density, node["value"].to(dtype))
    if not found.exact:
        raise ProgramError(
            f"guide site {site.name!r}: {type(base).__name__} is not a Gaussian in the site's unconstrained space "
            f"(residual {found.residual:.2g}); use a Normal or MultivariateNormal, or their transform by "
            f"biject_to({site.support}) for a constrained site"
        )
    return family, found.natural
