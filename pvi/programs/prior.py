"""The prior as natural parameters: recovered from the program itself, verified, and equal for every client."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pvi.posterior import Posterior
from pvi.programs.batch import Batch
from pvi.programs.guides import Approximation
from pvi.programs.program import Program, log_prior
from pvi.programs.recover import recover
from pvi.programs.sites import ProgramError


def prior_posterior(
    program: Program, approximation: Approximation, batches: Mapping[str, Batch], like: Tensor
) -> Posterior:
    """p(θ) as a member of the guide's family.

    Raises :class:`~pvi.programs.sites.ProgramError` where the prior lies outside the family, is improper, or differs
    between clients.
    """
    first_client, first = next(iter(batches.items()))
    found = recover(approximation.family, lambda x: log_prior(program, x, first), like)
    if not found.exact:
        raise ProgramError(_outside(program, approximation, first, like, found.residual))
    prior = Posterior(approximation.family, found.natural, approximation.coordinates)
    generator = torch.Generator(device=like.device).manual_seed(0)
    x = torch.randn(approximation.family.size, generator=generator, dtype=like.dtype, device=like.device)
    expected = log_prior(program, x, first)
    for client, batch in batches.items():
        value = log_prior(program, x, batch)
        if not torch.isclose(value, expected, rtol=1e-5):
            raise ProgramError(
                f"the prior depends on the data: client {client!r} has log p(θ) = {value.item():.6g} where client "
                f"{first_client!r} has {expected.item():.6g} at the same θ; all clients must share one prior"
            )
    return prior


def _outside(program: Program, approximation: Approximation, batch: Batch, like: Tensor, residual: float) -> str:
    """Names the sites whose prior is not in the family, each tried with the other sites at zero."""
    zeros = {site.name: like.new_zeros(site.size) for site in approximation.coordinates.sites}
    kinds = {site.name: site.distribution for site in program.sites.shared}
    blamed, offset = [], 0
    for name, member in zip(approximation.family.names, approximation.family.members, strict=True):
        total = like.new_zeros(approximation.family.size)

        def alone(x: Tensor, start: int = offset, total: Tensor = total) -> Tensor:
            full = torch.cat([total[:start], x, total[start + x.shape[0] :]])
            return log_prior(program, full, batch)

        natural = member.recover(alone, like)
        x = torch.linspace(-1.5, 2.5, member.size, dtype=like.dtype, device=like.device)
        points = torch.stack([x, -0.7 * x])
        difference = torch.stack([alone(point) - alone(0 * x) for point in points])
        fitted = (natural * (member.statistics(points) - member.statistics(0 * points))).sum(-1)
        if not torch.allclose(difference, fitted, rtol=1e-3, atol=1e-3) or not bool(member.is_proper(natural)):
            blamed.append(name)
        offset += member.size
    sites = blamed or list(zeros)
    described = ", ".join(
        f"{name!r} ({', '.join(kinds[part] for part in name.split('+') if part in kinds)})" for name in sites
    )
    return (
        f"the prior of {described} does not lie in the guide's family (residual {residual:.2g}): with guide=None and "
        "guide='full' a shared site needs a prior that is Gaussian in its unconstrained space (Normal, "
        "MultivariateNormal, LogNormal, ...), normalised, and independent of other sites unless they share a "
        "full-covariance group. Choose such a prior (for a scale: LogNormal), or write the site as a transform of a "
        "Normal (non-centred: mean + scale * z with z ~ Normal(0, 1))"
    )
