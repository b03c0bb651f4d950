"""Sites of a Pyro program as one flat real vector x, and back.

A constrained site θ = B(u) is approximated by Gaussians in the unconstrained space u, with the bijection B that
``torch.distributions.biject_to`` gives its support; densities over θ carry the Jacobian of B. Families on a support
(Gamma, Dirichlet, Bernoulli, ...) act on θ itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import biject_to, constraints
from torch.distributions.constraints import Constraint
from torch.distributions.transforms import ComposeTransform, IndependentTransform, Transform, identity_transform


@dataclass(frozen=True)
class SiteCoordinates:
    """One site: its name, its shape, the shape of the value's coordinates, their bijection, and the support.

    The bijection is that from the reals (:func:`site_coordinates`), or the identity where a family lives in the site's
    own space (:func:`own_coordinates`).
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    transform: Transform
    support: Constraint

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return math.prod(self.unconstrained_shape)

    @property
    def is_real(self) -> bool:
        """Whether the coordinates are the site's own: it is real, or its family lives on its support."""
        return _is_identity(self.transform)

    @property
    def is_integer(self) -> bool:
        """Whether the site's values are indices or counts; zeros and ones stay floats."""
        support = self.support
        while isinstance(support, constraints.independent):
            support = support.base_constraint
        return bool(support.is_discrete) and not isinstance(support, type(constraints.boolean))

    @property
    def is_elementwise(self) -> bool:
        """Whether the bijection acts on every element by itself."""
        return _base(self.transform).domain.event_dim == 0

    def constrain(self, u: Tensor) -> Tensor:
        """``[..., size] -> [..., *shape]``."""
        value: Tensor = self.transform(u.reshape((*u.shape[:-1], *self.unconstrained_shape)))
        # Coordinates are floats; a model indexes with the values of its integer sites.
        return value.long() if self.is_integer else value

    def unconstrain(self, value: Tensor) -> Tensor:
        """``[..., *shape] -> [..., size]``."""
        lead = value.shape[: value.ndim - len(self.shape)]
        if not value.is_floating_point():
            value = value.to(torch.get_default_dtype())
        u: Tensor = self.transform.inv(value)
        return u.reshape((*lead, self.size))

    def log_abs_det_jacobian(self, u: Tensor) -> Tensor:
        """log |dB(u)/du| in nats, ``[..., size] -> [...]``."""
        lead = u.shape[:-1]
        if self.is_real:
            return torch.zeros(lead, dtype=u.dtype, device=u.device)
        shaped = u.reshape((*lead, *self.unconstrained_shape))
        jacobian: Tensor = self.transform.log_abs_det_jacobian(shaped, self.transform(shaped))
        return jacobian.reshape((*lead, -1)).sum(-1)


def site_coordinates(name: str, shape: tuple[int, ...], support: Constraint) -> SiteCoordinates:
    """The coordinates of a site with values of ``shape`` in ``support``.

    Raises ``ValueError`` where no bijection to the reals is known.
    """
    try:
        transform = biject_to(support)
    except NotImplementedError as error:
        raise ValueError(
            f"site {name!r}: no bijection from the reals onto its support {support} is known; "
            "reparameterise the site (for example as a transform of a Normal)"
        ) from error
    unconstrained = tuple(transform.inverse_shape(torch.Size(shape)))
    return SiteCoordinates(name, tuple(shape), unconstrained, transform, support)


def own_coordinates(name: str, shape: tuple[int, ...], support: Constraint) -> SiteCoordinates:
    """The coordinates of a site whose family lives in the site's own space: the values themselves, flattened."""
    return SiteCoordinates(name, tuple(shape), tuple(shape), identity_transform, support)


@dataclass(frozen=True)
class Coordinates:
    """All shared sites, end to end in the order of the families that approximate them."""

    sites: tuple[SiteCoordinates, ...]

    @property
    def size(self) -> int:
        """Length of x."""
        return sum(site.size for site in self.sites)

    @property
    def names(self) -> tuple[str, ...]:
        """The site names in order."""
        return tuple(site.name for site in self.sites)

    def pieces(self, x: Tensor) -> dict[str, Tensor]:
        """x by site, still unconstrained, each ``[..., size of the site]``."""
        return dict(zip(self.names, x.split([site.size for site in self.sites], -1), strict=True))

    def constrain(self, x: Tensor) -> dict[str, Tensor]:
        """``[..., size]`` -> {site: ``[..., *shape]``}."""
        pieces = x.split([site.size for site in self.sites], -1)
        return {site.name: site.constrain(u) for site, u in zip(self.sites, pieces, strict=True)}

    def unconstrain(self, values: Mapping[str, Tensor]) -> Tensor:
        """The inverse of :meth:`constrain`; raises ``KeyError`` naming a missing site."""
        missing = [name for name in self.names if name not in values]
        if missing:
            raise KeyError(f"no value for the shared sites {missing}; needed: {list(self.names)}")
        return torch.cat([site.unconstrain(values[site.name]) for site in self.sites], -1)

    def log_abs_det_jacobian(self, x: Tensor) -> Tensor:
        """log |dθ/dx| in nats, ``[..., size] -> [...]``."""
        pieces = x.split([site.size for site in self.sites], -1)
        parts = [site.log_abs_det_jacobian(u) for site, u in zip(self.sites, pieces, strict=True)]
        return torch.stack(parts).sum(0)


def _base(transform: Transform) -> Transform:
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    return transform


def _is_identity(transform: Transform) -> bool:
    base = _base(transform)
    return isinstance(base, ComposeTransform) and not base.parts
