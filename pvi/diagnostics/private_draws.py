"""Draws of the clients' own latents z_m that belong to given draws of the shared ones: all clients share one θ.

q(θ, z_m) is the client's joint posterior. Where z joins a Gaussian over (θ, z) with precision Λ and h = Λm,

    q(z | θ) = N(Λ_zz⁻¹ (h_z - Λ_zθ θ), Λ_zz⁻¹)

in unconstrained coordinates; other members are independent of θ.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Coordinates, Family, FullGaussian, Product, SiteCoordinates, log_prob
from pvi.families.triangle import fill, pack
from pvi.posterior import Posterior
from pvi.result import Result


class Drawn(NamedTuple):
    """Draws of θ ({site: ``[n, *shape]``}), each client's z_m that belong to them, and their log density.

    ``log_q`` = log q(θ) + Σ_m log q(z_m | θ) in nats, ``[n]``.
    """

    shared: dict[str, Tensor]
    private: dict[str, dict[str, Tensor]]
    log_q: Tensor

    def of(self, client: str) -> dict[str, Tensor]:
        """What a client's program needs: the shared latents and the client's own."""
        return self.shared | self.private.get(client, {})


class Conditional(NamedTuple):
    """q(z | θ) at n values of θ: one family over the coordinates of z, with η ``[n, num_natural]``."""

    family: Product
    natural: Tensor
    coordinates: Coordinates


def draw(result: Result, num_samples: int, generator: torch.Generator, leave_out: Collection[str] = ()) -> Drawn:
    """Joint draws of all latents but the private sites ``leave_out``; the shared ones come first from ``generator``."""
    shared = result.posterior.sample(num_samples, generator)
    log_q = result.posterior.log_prob(shared)
    private = {}
    for client, local in result.local.items():
        given = conditional(local, result.posterior.coordinates, shared, leave_out)
        if given is not None:
            x = given.family.sample(given.natural, (), generator)
            log_q = log_q + log_prob(given.family, given.natural, x) - given.coordinates.log_abs_det_jacobian(x)
            private[client] = given.coordinates.constrain(x)
    return Drawn(shared, private, log_q)


def conditional(
    local: Posterior, shared: Coordinates, draws: Mapping[str, Tensor], leave_out: Collection[str] = ()
) -> Conditional | None:
    """q(z | θ) from q(θ, z) at draws of θ, without the sites ``leave_out``; ``None`` where no site is left."""
    x = shared.unconstrain(draws).to(local.natural)
    found: list[tuple[str, Family, Tensor, tuple[SiteCoordinates, ...]]] = []
    start = 0
    for name, member, natural, sites in _members(local):
        own = tuple(site for site in sites if site.name not in shared.names)
        before, start = start, start + member.size
        if not own or all(site.name in leave_out for site in own):
            continue
        if before >= shared.size:
            found.append((name, member, natural.expand(len(x), -1), own))
        else:
            assert isinstance(member, FullGaussian), "only a full Gaussian ties private latents to shared ones"
            found.append(("+".join(site.name for site in own), *_given(member, natural, x), own))
    if not found:
        return None
    names, families, naturals, groups = zip(*found, strict=True)
    coordinates = Coordinates(tuple(site for group in groups for site in group))
    return Conditional(Product(names, families), torch.cat(naturals, -1), coordinates)


def _given(family: FullGaussian, natural: Tensor, x: Tensor) -> tuple[FullGaussian, Tensor]:
    """The last coordinates of a Gaussian given the first ones ``x [n, k]``, η ``[n, ...]``."""
    size, known = family.size, x.shape[-1]
    cross = family.precision_matrix(natural)[known:, :known]
    h = natural[known:size] - x @ cross.mT
    block = pack(fill(natural[size:], size)[known:, known:])
    return FullGaussian(size - known), torch.cat([h, block.expand(len(x), -1)], -1)


def _members(local: Posterior) -> Iterator[tuple[str, Family, Tensor, tuple[SiteCoordinates, ...]]]:
    """The members of a posterior's family with their η and their sites."""
    left = list(local.coordinates.sites)
    for (name, natural), member in zip(local.natural_by_site.items(), local.family.members, strict=True):
        sites: list[SiteCoordinates] = []
        while sum(site.size for site in sites) < member.size:
            sites.append(left.pop(0))
        yield name, member, natural, tuple(sites)
