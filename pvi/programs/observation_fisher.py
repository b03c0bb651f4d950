"""The curvature of a program's log likelihood in its coordinates: generalised Gauss-Newton matrix and Hessian.

The generalised Gauss-Newton matrix is Σ_j J_jᵀ I(z_j) J_j, with z_j the parameters of the observed distribution at row
j, J_j their Jacobian and I(z) the Fisher information in them (Martens, 2020, "New insights and perspectives on the
natural gradient method"). It is never indefinite, and the Hessian where a model is linear in natural parameters.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.program import Program, site_nodes
from pvi.programs.row_gradients import mixing, over_rows
from pvi.programs.weighted import weighted_log_likelihood


def fisher_roots(program: Program, x: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
    """R ``[m, d]`` with RᵀR = Σ_j w_j J_jᵀ I(z_j) J_j at x ``[d]``; m is n times the roots of a row.

    Rows are batches of their own, for which a program must pass :func:`~pvi.programs.row_gradients.check_rows`; those
    of R stand in the order of the batch's. ``weights [n]`` are 0 for padding and 1 otherwise. A mask or scale of an
    observed site multiplies its information. Safe under ``vmap`` and graph capture.

    Raises :class:`~pvi.programs.errors.ProgramError` for observed distributions other than those of ``ROOTS``, and for
    programs with a plate that subsamples or latents of their own.
    """
    reason = mixing(program)
    if reason is not None:
        raise ProgramError(f"{reason}; the Fisher information of the observations needs a sum over rows")
    private = [site.name for site in program.sites.private]
    if private:
        raise ProgramError(f"sites {private} are private: the Fisher information of the observations leaves them out")
    names = program.likelihood_sites

    def of_row(row: Batch) -> Tensor:
        def rooted(x: Tensor) -> Tensor:
            nodes = site_nodes(program, program.coordinates.constrain(x), row, names)
            return torch.cat([part for name, node in nodes.items() for part in _rooted(name, node)])

        jacobian: Tensor = torch.func.jacrev(rooted)(x)
        return jacobian

    roots = over_rows(of_row, batch)
    return (roots if weights is None else roots * weights[:, None, None]).flatten(0, 1)


def hessian(program: Program, x: Tensor, batch: Batch, weights: Tensor | None = None) -> Tensor:
    """-∇² Σ_j w_j log p(y_j | θ(x)) at x ``[d]``, ``[d, d]``; ``weights [n]`` are 0 for padding and 1 otherwise.

    Positive definite only near a maximum or for log-concave likelihoods. Safe under ``vmap`` and graph capture.
    """
    # Backward twice: torch's forward mode loads rules that warn of their age.
    gradient = torch.func.grad(lambda x: weighted_log_likelihood(program, x, batch, weights))
    found: Tensor = torch.func.jacrev(gradient)(x)
    return -found


Root = Callable[[Any], list[Tensor]]
"""Distribution -> functions u ``[*batch, k]`` of its parameters z with (∂u/∂z)ᵀ (∂u/∂z) = I(z), element by element."""


def _rooted(name: str, node: Mapping[str, Any]) -> list[Tensor]:
    """A site's functions u, flat, times the square root of its scale and mask."""
    fn, events = node["fn"], 0
    while isinstance(fn, torch.distributions.Independent):
        fn, events = fn.base_dist, events + fn.reinterpreted_batch_ndims
    root = ROOTS.get(type(fn))
    if root is None:
        known = sorted(kind.__name__ for kind in ROOTS)
        raise ProgramError(
            f"observed site {name!r}: no Fisher information is known for {type(fn).__name__}, only for {known} and "
            'events of these; use curvature="empirical-fisher"'
        )
    parts = root(fn)
    factor = torch.as_tensor(node["scale"], dtype=parts[0].dtype, device=parts[0].device).detach().sqrt()
    if node["mask"] is not None:
        factor = factor * node["mask"]
    factor = factor.reshape(*factor.shape, *[1] * (events + 1))
    # What does not depend on the latents has no derivatives, and would fill R with zeros.
    moving = [part for part in parts if part.requires_grad] or parts[:1]
    return [(part * factor).flatten() for part in moving]


def _categorical(fn: Any) -> list[Tensor]:
    """I = diag(p) - p pᵀ in logits: the derivative of sqrt(p_c) log p_c, its first factor fixed, is sqrt(p_c)(e_c - p).

    A class of probability 0 has log p = -inf, and no information.
    """
    log_p = fn.logits
    p = log_p.detach().exp()
    return [torch.where(p > 0, p.sqrt() * torch.where(p > 0, log_p, 0.0), 0.0)]


def _bernoulli(fn: Any) -> list[Tensor]:
    """I = p (1 - p) in the logit."""
    logit = fn.logits
    return [(_bernoulli_variance(logit).sqrt() * logit)[..., None]]


def _binomial(fn: Any) -> list[Tensor]:
    """I = n p (1 - p) in the logit."""
    logit = fn.logits
    return [((fn.total_count * _bernoulli_variance(logit)).sqrt() * logit)[..., None]]


def _bernoulli_variance(logit: Tensor) -> Tensor:
    fixed = logit.detach()
    return torch.sigmoid(fixed) * torch.sigmoid(-fixed)


def _poisson(fn: Any) -> list[Tensor]:
    """I = r in the logarithm of the rate r, where ∂r = r ∂ log r; a rate that underflows to 0 has none."""
    rate = fn.rate
    return [(rate / rate.detach().clamp(min=torch.finfo(rate.dtype).tiny).sqrt())[..., None]]


def _normal(fn: Any) -> list[Tensor]:
    """I = diag(1 / σ², 2 / σ²) in location and scale σ."""
    fixed = fn.scale.detach()
    return [(fn.loc / fixed)[..., None], (2**0.5 * fn.scale / fixed)[..., None]]


ROOTS: dict[type, Root] = {
    dist.Categorical: _categorical,
    dist.OneHotCategorical: _categorical,
    dist.Bernoulli: _bernoulli,
    dist.Binomial: _binomial,
    dist.Poisson: _poisson,
    dist.Normal: _normal,
}
"""By exact type: subclasses may have other densities."""
