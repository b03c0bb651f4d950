"""The approximate posterior q(θ) over the shared sites: always proper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from pvi.families import Coordinates, Family, Product, SiteCoordinates, entropy, is_gaussian, kl, log_prob

QUADRATURE_NODES = 64
MOMENT_DRAWS = 4096


class ImproperError(ValueError):
    """A normalised distribution was asked of natural parameters that have none."""


@dataclass(frozen=True)
class Posterior:
    """q(θ) = exp(η·T(x) - A(η)) |dx/dθ| with x the sites' coordinates end to end.

    Gaussian members have unconstrained coordinates, others the sites' own (where the Jacobian is 1; a simplex has its
    density with respect to the first K - 1 coordinates of each vector, a discrete site with respect to counting).

    ``natural`` is the flat vector ``[num_natural]``; :meth:`natural_by_site` names its pieces. Raises
    :class:`ImproperError` at construction where η is improper.
    """

    family: Product
    natural: Tensor
    coordinates: Coordinates

    def __post_init__(self) -> None:
        if not bool(self.family.is_proper(self.natural)):
            bad = [
                name
                for (name, part), member in zip(
                    self.family.split(self.natural).items(), self.family.members, strict=True
                )
                if not bool(member.is_proper(part))
            ]
            raise ImproperError(
                f"natural parameters of {', '.join(bad)} are improper (a precision, shape or rate that is not "
                "positive, or a value that is not finite); keep a Factor, or shorten the step that led here"
            )

    @property
    def site_names(self) -> tuple[str, ...]:
        """The shared sites in order."""
        return self.coordinates.names

    @property
    def natural_by_site(self) -> dict[str, Tensor]:
        """η by site (or group of sites)."""
        return self.family.split(self.natural)

    def sample(self, n: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """{site: ``[n, *shape]``} independent draws in the sites' own (constrained) spaces."""
        return self.coordinates.constrain(self.family.sample(self.natural, (n,), generator))

    def log_prob(self, values: Mapping[str, Tensor]) -> Tensor:
        """log q(θ) in nats for {site: ``[..., *shape]``}, Jacobians of the bijections included."""
        x = self.coordinates.unconstrain(values)
        return log_prob(self.family, self.natural, x) - self.coordinates.log_abs_det_jacobian(x)

    def entropy(self) -> Tensor:
        """H[q] of the coordinates x, in nats."""
        return entropy(self.family, self.natural)

    def kl(self, other: "Posterior") -> Tensor:
        """KL(q, other) in nats; both must approximate the same sites in the same family."""
        if other.coordinates.names != self.coordinates.names:
            raise ValueError(f"posteriors over different sites: {self.site_names} and {other.site_names}")
        if other.family != self.family:
            raise ValueError(
                f"posteriors of different families: {self.family.members} and {other.family.members}; "
                "estimate the divergence from .sample and .log_prob"
            )
        return kl(self.family, self.natural, other.natural)

    def marginal(self, site: str) -> Distribution:
        """The law of one site as a ``torch.distributions`` object with the site's event shape."""
        coordinates, family, natural = self._marginal(site)
        distribution = family.distribution(natural, coordinates.unconstrained_shape)
        if coordinates.is_real:
            return distribution
        return TransformedDistribution(distribution, [coordinates.transform])

    @property
    def mean(self) -> dict[str, Tensor]:
        """E[θ] by site; see :meth:`moments`."""
        return {name: self.moments(name)[0] for name in self.site_names}

    @property
    def sd(self) -> dict[str, Tensor]:
        """Standard deviations by site, elementwise; see :meth:`moments`."""
        return {name: self.moments(name)[1] for name in self.site_names}

    def moments(self, site: str) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of every element of a site.

        Exact for real sites and for families that live on the site's support (a categorical site's are those of its
        index); by Gauss-Hermite quadrature (64 nodes) where a bijection acts elementwise (positive, interval, ...);
        else (simplex, correlation, ...) from 4,096 draws with a fixed seed.
        """
        coordinates, family, natural = self._marginal(site)
        loc, variance = family.moments(natural)
        if coordinates.is_real:
            return loc.reshape(coordinates.shape), variance.sqrt().reshape(coordinates.shape)
        if coordinates.is_elementwise and is_gaussian(family):
            nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_NODES)
            z = torch.as_tensor(nodes, dtype=loc.dtype, device=loc.device)
            weight = torch.as_tensor(weights / weights.sum(), dtype=loc.dtype, device=loc.device)
            values = coordinates.constrain(loc + z[:, None] * variance.sqrt())
        else:
            generator = torch.Generator(device=loc.device).manual_seed(0)
            values = coordinates.constrain(family.sample(natural, (MOMENT_DRAWS,), generator))
            weight = loc.new_full((MOMENT_DRAWS,), 1 / MOMENT_DRAWS)
        mean = torch.tensordot(weight, values, dims=1)
        return mean, torch.tensordot(weight, (values - mean).square(), dims=1).sqrt()

    def restrict(self, names: Sequence[str]) -> "Posterior":
        """The marginals of some sites as a posterior of their own, in which they are independent of each other."""
        parts = [self._marginal(name) for name in names]
        family = Product(tuple(names), tuple(member for _, member, _ in parts))
        coordinates = Coordinates(tuple(site for site, _, _ in parts))
        return Posterior(family, torch.cat([natural for _, _, natural in parts]), coordinates)

    def _marginal(self, site: str) -> tuple[SiteCoordinates, Family, Tensor]:
        start = 0
        for coordinates in self.coordinates.sites:
            if coordinates.name == site:
                family, natural = self.family.marginal(self.natural, start, start + coordinates.size)
                return coordinates, family, natural
            start += coordinates.size
        raise KeyError(f"no shared site {site!r}; there are {list(self.site_names)}")
