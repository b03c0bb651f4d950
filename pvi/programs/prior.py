"""The prior as natural parameters: recovered from the program itself, verified, and equal for every client."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.posterior import Posterior
from pvi.programs.batch import Batch
from pvi.programs.guides import Approximation
from pvi.programs.program import Program, log_prior
from pvi.programs.recover import recover, recover_factor, support_points
from pvi.programs.sites import ProgramError

ROUNDING = 1e-3
"""A single site is blamed where its log prior is off by more than this share of its size."""


class OutsideFamily(NamedTuple):
    """A prior that is no member of the guide's family: why, for people, and by how much (relative, see ``recover``)."""

    message: str
    residual: float


def prior_posterior(
    program: Program, approximation: Approximation, batches: Mapping[str, Batch], like: Tensor
) -> Posterior:
    """p(θ) as a member of the guide's family.

    Raises :class:`~pvi.programs.sites.ProgramError` where the prior lies outside the family, is improper, or differs
    between clients.
    """
    found = find_prior(program, approximation, batches, like)
    if isinstance(found, OutsideFamily):
        raise ProgramError(found.message)
    return found


def find_prior(
    program: Program, approximation: Approximation, batches: Mapping[str, Batch], like: Tensor
) -> Posterior | OutsideFamily:
    """p(θ) as a member of the guide's family, or why it is none.

    Raises :class:`~pvi.programs.sites.ProgramError` where the prior differs between clients.
    """
    first = next(iter(batches.values()))
    _check_shared(program, approximation, batches, like)
    found = recover(approximation.family, lambda x: log_prior(program, x, first), like)
    if not found.exact:
        return OutsideFamily(_outside(program, approximation, first, like, found.residual), found.residual)
    return Posterior(approximation.family, found.natural, approximation.coordinates)


def _check_shared(program: Program, approximation: Approximation, batches: Mapping[str, Batch], like: Tensor) -> None:
    x = support_points(approximation.family, like)[-1]
    (first_client, first), *others = batches.items()
    expected = log_prior(program, x, first)
    for client, batch in others:
        value = log_prior(program, x, batch)
        if not torch.isclose(value, expected, rtol=1e-5, equal_nan=True):
            raise ProgramError(
                f"the prior depends on the data: client {client!r} has log p(θ) = {value.item():.6g} where client "
                f"{first_client!r} has {expected.item():.6g} at the same θ; all clients must share one prior"
            )


def _outside(program: Program, approximation: Approximation, batch: Batch, like: Tensor, residual: float) -> str:
    """Names the sites whose prior is not in the family, each tried with the other sites held inside their supports."""
    kinds = {site.name: site.distribution for site in program.sites.shared}
    inside = approximation.family.interior(like)
    blamed, offset = [], 0
    for name, member in zip(approximation.family.names, approximation.family.members, strict=True):

        def alone(x: Tensor, start: int = offset) -> Tensor:
            return log_prior(program, torch.cat([inside[:start], x, inside[start + x.shape[0] :]]), batch)

        found = recover_factor(member, alone, like)
        if not found.residual <= ROUNDING or not bool(member.is_proper(found.natural)):
            blamed.append(name)
        offset += member.size
    sites = blamed or list(approximation.family.names)
    described = ", ".join(
        f"{name!r} ({', '.join(kinds[part] for part in name.split('+') if part in kinds)})" for name in sites
    )
    return (
        f"the prior of {described} does not lie in the guide's family (residual {residual:.2g}): with guide=None and "
        "guide='full' a shared site needs a prior that is Gaussian in its unconstrained space (Normal, "
        "MultivariateNormal, LogNormal, ...), normalised, and independent of other sites unless they share a "
        "full-covariance group. Choose such a prior (for a scale: LogNormal), write the site as a transform of a "
        "Normal (non-centred: mean + scale * z with z ~ Normal(0, 1)), or let Gamma, Beta and Dirichlet priors have "
        "their own family with guide='conjugate'"
    )
