"""Intervals and signs of single elements of a site, exact but for Gaussians under a bijection of whole vectors."""

from statistics import NormalDist

import torch
from torch import Tensor
from torch.distributions import TransformedDistribution

from pvi.diagnostics.quantiles import quantile
from pvi.families import SiteCoordinates, is_gaussian
from pvi.posterior import Posterior

DRAWS = 4096
FAR = 30.0
"""An unconstrained value whose image is as good as an end of the support."""


def site_of(posterior: Posterior, site: str) -> SiteCoordinates:
    """The coordinates of a shared site; raises ``KeyError`` with the names there are."""
    for coordinates in posterior.coordinates.sites:
        if coordinates.name == site:
            return coordinates
    raise KeyError(f"no shared site {site!r}; there are {list(posterior.site_names)}")


def interval(posterior: Posterior, site: str, level: float = 0.95) -> tuple[Tensor, Tensor]:
    """The equal-tailed interval of every element of a site: its lower and upper end, each of the site's shape.

    Quantiles of a Gaussian through the bijection, so exact, for real sites and elementwise bijections; exact too for
    families that live on the site's support (of a categorical site's index). For others (a Gaussian under the bijection
    to a simplex, to correlations, ...) quantiles of 4,096 draws with a fixed seed.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    coordinates = site_of(posterior, site)
    levels = (0.5 - level / 2, 0.5 + level / 2)
    if not _is_gaussian_by_element(posterior, coordinates):
        alone = posterior.restrict([site])
        ends = [quantile(alone.family.members[0], alone.natural, share) for share in levels]
        if ends[0] is None or ends[1] is None:
            low, high = _draws(posterior, site).quantile(posterior.natural.new_tensor(levels), 0)
        else:
            low, high = (end.reshape(coordinates.shape) for end in (ends[0], ends[1]))
    else:
        loc, scale = _unconstrained(posterior, coordinates)
        reach = NormalDist().inv_cdf(0.5 + level / 2) * scale
        low, high = coordinates.constrain(loc - reach), coordinates.constrain(loc + reach)
    # A bijection may be decreasing (less_than).
    return torch.minimum(low, high), torch.maximum(low, high)


def direction(posterior: Posterior, site: str) -> Tensor:
    """max(P(θ > 0), P(θ < 0)) of every element of a site; NaN where the support leaves only one sign.

    Exact for real sites and elementwise bijections, else from draws.
    """
    coordinates = site_of(posterior, site)
    if not _is_gaussian_by_element(posterior, coordinates):
        draws = _draws(posterior, site)
        positive = (draws > 0).to(posterior.natural.dtype).mean(0)
        one_sign = (draws >= 0).all(0) | (draws <= 0).all(0)
        return torch.where(one_sign, torch.nan, torch.maximum(positive, 1 - positive))
    loc, scale = _unconstrained(posterior, coordinates)
    far = torch.full_like(loc, FAR)
    ends = torch.stack([coordinates.constrain(-far), coordinates.constrain(far)])
    one_sign = (ends >= 0).all(0) | (ends <= 0).all(0)
    # Where zero is outside the support it has no place in the unconstrained space: any value inside serves.
    zero = coordinates.unconstrain(torch.where(one_sign, coordinates.constrain(loc), torch.zeros_like(ends[0])))
    below = torch.special.ndtr((zero - loc) / scale).reshape(coordinates.shape)
    return torch.where(one_sign, torch.nan, torch.maximum(below, 1 - below))


def _is_gaussian_by_element(posterior: Posterior, coordinates: SiteCoordinates) -> bool:
    """Whether every element of the site is a transformed Gaussian by itself."""
    alone = posterior.restrict([coordinates.name])
    return coordinates.is_elementwise and is_gaussian(alone.family)


def _unconstrained(posterior: Posterior, coordinates: SiteCoordinates) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the unconstrained elements, flat."""
    marginal = posterior.marginal(coordinates.name)
    base = marginal.base_dist if isinstance(marginal, TransformedDistribution) else marginal
    return base.mean.reshape(-1), base.variance.sqrt().reshape(-1)


def _draws(posterior: Posterior, site: str) -> Tensor:
    generator = torch.Generator(device=posterior.natural.device).manual_seed(0)
    return posterior.sample(DRAWS, generator)[site].to(posterior.natural.dtype)
