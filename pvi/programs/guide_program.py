"""A Pyro guide that draws the shared sites from q: stock distributions, no auxiliary sites."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

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
)
from pvi.programs.guides import Approximation


def guide_program(approximating: Approximation, natural: Callable[[], Tensor]) -> Callable[..., None]:
    """A Pyro guide that draws the shared sites from q: stock distributions, no auxiliary sites.

    ``natural`` is called at each run and may read ``pyro.param``s. Sites of one full-covariance group are drawn one
    after the other, each from its conditional Gaussian, so that every Pyro ELBO sees plain densities.
    """

    def guide(*_args: Any, **_kwargs: Any) -> None:
        parts = approximating.family.split(natural())
        sites = list(approximating.coordinates.sites)
        for member, part in zip(approximating.family.members, parts.values(), strict=True):
            count, total = 0, 0
            while total < member.size:
                total += sites[count].size
                count += 1
            group, sites = sites[:count], sites[count:]
            _draw(member, part, group)

    return guide


Standard = dict[str, Tensor]
Shape = tuple[int, ...]


def _normal(standard: Standard, shape: Shape) -> Any:
    return dist.Normal(standard["loc"].reshape(shape), standard["scale"].reshape(shape)).to_event(len(shape))


def _gamma(standard: Standard, shape: Shape) -> Any:
    return dist.Gamma(standard["concentration"].reshape(shape), standard["rate"].reshape(shape)).to_event(len(shape))


def _beta(standard: Standard, shape: Shape) -> Any:
    a, b = standard["concentration1"].reshape(shape), standard["concentration0"].reshape(shape)
    return dist.Beta(a, b).to_event(len(shape))


def _dirichlet(standard: Standard, shape: Shape) -> Any:
    return dist.Dirichlet(standard["concentration"].reshape(shape)).to_event(len(shape) - 1)


def _bernoulli(standard: Standard, shape: Shape) -> Any:
    return dist.Bernoulli(standard["probs"].reshape(shape)).to_event(len(shape))


def _categorical(standard: Standard, shape: Shape) -> Any:
    probs = standard["probs"]
    return dist.Categorical(probs.reshape((*shape, probs.shape[-1]))).to_event(len(shape))


BY_SITE: dict[type, Callable[[Standard, Shape], Any]] = {
    DiagonalGaussian: _normal,
    Gamma: _gamma,
    Beta: _beta,
    Dirichlet: _dirichlet,
    Bernoulli: _bernoulli,
    Categorical: _categorical,
}
"""A member over one site as a Pyro distribution with events of the given shape."""


def _draw(member: Family, natural: Tensor, group: list[SiteCoordinates]) -> None:
    standard = member.standard(natural)
    build = BY_SITE.get(type(member))
    if build is not None:
        (site,) = group
        _sample(site, build(standard, site.unconstrained_shape))
        return
    if not isinstance(member, FullGaussian):
        raise TypeError(f"no Pyro distribution is known for {member} (sites {[site.name for site in group]})")
    cholesky = torch.linalg.cholesky(standard["covariance_matrix"])
    start = 0
    noise: list[Tensor] = []
    for site in group:
        block = slice(start, start + site.size)
        loc = standard["loc"][block]
        if noise:
            loc = loc + torch.cat(noise, -1) @ cholesky[block, :start].mT
        square = cholesky[block, block]
        u = site.unconstrain(_sample(site, _event(loc, square, site.unconstrained_shape)))
        noise.append(torch.linalg.solve_triangular(square, (u - loc)[..., None], upper=False)[..., 0])
        start += site.size


def _event(loc: Tensor, cholesky: Tensor, shape: tuple[int, ...]) -> Any:
    if shape == ():
        return dist.Normal(loc[..., 0], cholesky[0, 0])
    normal = dist.MultivariateNormal(loc, scale_tril=cholesky)
    if len(shape) == 1:
        return normal
    reshape = dist.transforms.ReshapeTransform(torch.Size((loc.shape[-1],)), torch.Size(shape))
    return dist.TransformedDistribution(normal, [reshape])


def _sample(site: SiteCoordinates, base: Any) -> Tensor:
    fn = base if site.is_real else dist.TransformedDistribution(base, [site.transform])
    value: Tensor = pyro.sample(site.name, fn)
    return value
