"""The family, and the coordinates, in which a shared site is approximated."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import distributions as dist
from torch.distributions import constraints

from pvi.families import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalGaussian,
    Dirichlet,
    Family,
    FullGaussian,
    Gamma,
    SiteCoordinates,
    own_coordinates,
    site_coordinates,
)
from pvi.programs.sites import ProgramError, Site

MAX_FULL = 8192
"""The largest full covariance: half a gigabyte a copy in double precision."""


class SiteFamily(NamedTuple):
    """A member of the approximation over one site."""

    coordinates: SiteCoordinates
    family: Family


def mean_field(site: Site) -> SiteFamily:
    """Independent numbers: Gaussian in unconstrained space; a site of finitely many values keeps its own law.

    Raises :class:`~pvi.programs.sites.ProgramError` for a discrete site whose values are not 0, 1, ..., K - 1.
    """
    if not site.support.is_discrete:
        coordinates = site_coordinates(site.name, site.shape, site.support)
        return SiteFamily(coordinates, DiagonalGaussian(coordinates.size))
    return _bernoulli(site) if isinstance(unwrapped(site.support), type(constraints.boolean)) else _categorical(site)


def full(site: Site) -> SiteFamily:
    """A Gaussian with full covariance in unconstrained space."""
    coordinates = site_coordinates(site.name, site.shape, site.support)
    check_full(coordinates.size, [site.name])
    return SiteFamily(coordinates, FullGaussian(coordinates.size))


def check_full(size: int, names: list[str]) -> None:
    """Raises :class:`~pvi.programs.sites.ProgramError` where a full covariance would not fit into memory."""
    if size > MAX_FULL:
        raise ProgramError(
            f"a full covariance over {size} reals (sites {names}) needs {8 * size**2 / 1e9:.0f} GB a copy; "
            "use guide=None (mean field), or pvi.FullCovariance over smaller groups"
        )


def unwrapped(support: Any) -> Any:
    """A support without its independent dimensions."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support


def _own(site: Site, family: Family) -> SiteFamily:
    return SiteFamily(own_coordinates(site.name, site.shape, site.support), family)


def _gamma(site: Site) -> SiteFamily:
    return _own(site, Gamma(math.prod(site.shape)))


def _beta(site: Site) -> SiteFamily:
    return _own(site, Beta(math.prod(site.shape)))


def _dirichlet(site: Site) -> SiteFamily:
    return _own(site, Dirichlet(site.shape[-1], math.prod(site.shape[:-1])))


def _bernoulli(site: Site) -> SiteFamily:
    return _own(site, Bernoulli(math.prod(site.shape)))


def _categorical(site: Site) -> SiteFamily:
    support = unwrapped(site.support)
    bounds = [torch.as_tensor(getattr(support, name, math.nan)) for name in ("lower_bound", "upper_bound")]
    low, high = (bound.unique() for bound in bounds)
    if not (len(low) == len(high) == 1 and low.item() == 0 and math.isfinite(high.item())):
        raise ProgramError(
            f"site {site.name!r} ({site.distribution}) is discrete with support {site.support}: a shared discrete site "
            "needs the values 0, 1, ..., K - 1 (Bernoulli, Categorical, ...) with one K for all its elements"
        )
    return _own(site, Categorical(int(high.item()) + 1, math.prod(site.shape)))


TABLE: dict[type[dist.Distribution], Callable[[Site], SiteFamily]] = {
    dist.MultivariateNormal: full,
    dist.LowRankMultivariateNormal: full,
    dist.Gamma: _gamma,
    dist.Exponential: _gamma,
    dist.Beta: _beta,
    dist.Dirichlet: _dirichlet,
    dist.Bernoulli: _bernoulli,
    dist.Categorical: _categorical,
}
"""Which family a distribution of this class is a member of; others are taken for Gaussians."""


def of_distribution(site: Site, distribution: dist.Distribution) -> SiteFamily:
    """The family that a guide's distribution for the site lies in, if it lies in one."""
    for cls, build in TABLE.items():
        if isinstance(distribution, cls):
            return build(site)
    return mean_field(site)


def of_prior(site: Site) -> SiteFamily:
    """The family of the site's own prior, by the name of its class; mean field for classes that have none."""
    for cls, build in TABLE.items():
        if site.distribution == cls.__name__:
            return build(site)
    return mean_field(site)
