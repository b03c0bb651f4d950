"""Which family stands for which shared sites: mean field, full covariance, the priors' own, or a given guide's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvi.families import Coordinates, Family, FullGaussian, Product, SiteCoordinates
from pvi.programs.batch import Batch
from pvi.programs.read_guide import read_guide
from pvi.programs.site_families import SiteFamily, check_full, mean_field, of_prior
from pvi.programs.sites import ProgramError, Site


@dataclass(frozen=True)
class MeanField:
    """Every shared site a diagonal Gaussian in its unconstrained space; discrete ones Bernoulli or Categorical."""


@dataclass(frozen=True)
class FullCovariance:
    """One full-covariance Gaussian over each group of sites; no group named means one over all continuous sites.

    >>> FullCovariance(("weights", "bias"))  # other sites stay mean field
    FullCovariance(groups=(('weights', 'bias'),))
    """

    groups: tuple[tuple[str, ...], ...] = ()

    def __init__(self, *groups: Sequence[str]) -> None:
        if any(isinstance(group, str) for group in groups):
            raise TypeError(f"FullCovariance takes groups of site names: pvi.FullCovariance({groups})")
        object.__setattr__(self, "groups", tuple(tuple(group) for group in groups))


@dataclass(frozen=True)
class PriorFamily:
    """Every shared site in the family of its own prior's class, so that conjugate factors are exact.

    Gamma and exponential priors: Gamma; Beta, Dirichlet, Bernoulli and Categorical ones: the same; multivariate
    Gaussian ones: full covariance over the site; all others as in :class:`MeanField`.
    """


class Approximation(NamedTuple):
    """The family of q, its coordinates, and where local solvers start (``None``: at the q that they are sent)."""

    family: Product
    coordinates: Coordinates
    initial: Tensor | None


Guide = MeanField | FullCovariance | PriorFamily | Callable[..., Any]


def approximation(guide: Guide, shared: tuple[Site, ...], batch: Batch) -> Approximation:
    """The approximation that a guide describes for these shared sites.

    Raises :class:`~pvi.programs.sites.ProgramError` where the guide lacks a site, has an extra one, or is not made
    of exponential-family distributions.
    """
    if isinstance(guide, MeanField):
        return _each(shared, mean_field)
    if isinstance(guide, PriorFamily):
        return _each(shared, of_prior)
    if isinstance(guide, FullCovariance):
        return _full(guide, shared)
    found = read_guide(guide, shared, batch)
    members = [(name, (member.coordinates,), member.family) for name, member, _ in found]
    return _approximation(members, torch.cat([natural for _, _, natural in found]))


def _approximation(
    members: Sequence[tuple[str, tuple[SiteCoordinates, ...], Family]], initial: Tensor | None = None
) -> Approximation:
    names, sites, families = zip(*members, strict=True)
    return Approximation(Product(names, families), Coordinates(tuple(chain.from_iterable(sites))), initial)


def _each(sites: tuple[Site, ...], choose: Callable[[Site], SiteFamily]) -> Approximation:
    chosen = [(site.name, choose(site)) for site in sites]
    return _approximation([(name, (member.coordinates,), member.family) for name, member in chosen])


def _full(guide: FullCovariance, shared: tuple[Site, ...]) -> Approximation:
    by_name = {site.name: site for site in shared}
    continuous = tuple(site.name for site in shared if not site.is_discrete)
    groups = guide.groups or ((continuous,) if continuous else ())
    listed = [name for group in groups for name in group]
    unknown = [name for name in listed if name not in by_name]
    if unknown or len(set(listed)) < len(listed):
        raise ProgramError(
            f"FullCovariance groups {guide.groups} must name each shared site at most once; "
            f"unknown: {unknown}, shared sites: {list(by_name)}"
        )
    discrete = [name for name in listed if name not in continuous]
    if discrete:
        raise ProgramError(
            f"FullCovariance groups {guide.groups}: the sites {discrete} are discrete, no Gaussian has them"
        )
    members: list[tuple[str, tuple[SiteCoordinates, ...], Family]] = []
    for group in groups:
        sites = tuple(mean_field(by_name[name]).coordinates for name in group)
        size = sum(site.size for site in sites)
        check_full(size, list(group))
        members.append(("+".join(group), sites, FullGaussian(size)))
    # The sites of no group stay members of their own.
    alone = [(name, mean_field(site)) for name, site in by_name.items() if name not in listed]
    return _approximation([*members, *((name, (member.coordinates,), member.family) for name, member in alone)])
