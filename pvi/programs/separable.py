"""Recognise a prior of independent elements: then expectations of its logarithm are one-dimensional and exact.

The elements of the shared latents' coordinates play the part of rows, each its own predictor: f = x. Laplace, Student,
Cauchy, half-normal priors are of this kind; a scale that is itself a latent is not.
"""

from collections.abc import Callable

import torch
from pyro import poutine
from torch import Tensor
from torch.distributions.transforms import IndependentTransform

from pvi.families import SiteCoordinates
from pvi.programs.batch import Batch
from pvi.programs.context import running
from pvi.programs.handlers import Placeholders, Values
from pvi.programs.linear_predictor import MAX_SIZE, MIN_WIDTH, LinearPredictor, NotAffine, resolve_width
from pvi.programs.program import Program, log_prior
from pvi.programs.row_likelihood import close, stacked


def find_separable(program: Program, batch: Batch, like: Tensor) -> LinearPredictor | NotAffine:
    """log p(θ) as a sum over the elements of x, or why it is none; checked by evaluating it.

    Kinks are let pass (``smooth`` is false then): the finest nodes meet them well enough.
    """
    shared = program.shared
    if shared.size > MAX_SIZE or not all(site.is_elementwise for site in shared.sites):
        return NotAffine("its sites have no elements of their own, or too many")
    generator = torch.Generator(device=like.device).manual_seed(0)
    zero = like.new_zeros(shared.size)

    def by_element(x: Tensor) -> Tensor:
        return element_log_prob(program, batch, x)

    x = torch.randn(2, shared.size, generator=generator, dtype=like.dtype, device=like.device)
    try:
        found = by_element(x[0])
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return NotAffine(f"its sites' densities cannot be taken apart: {error}")
    tolerance = 1e4 * torch.finfo(like.dtype).eps
    if found.shape != zero.shape or not close(found.sum(), log_prior(program, x[0], batch), tolerance):
        return NotAffine("its elements' densities do not add up to it")
    odd = torch.arange(shared.size, device=like.device) % 2 == 1
    halves = torch.where(odd, found, by_element(x[1]))
    alone = [_with(zero, index, x[0, index]) for index in range(min(shared.size, 8))]
    if not close(by_element(torch.where(odd, x[0], x[1])), halves, tolerance) or not all(
        close(by_element(one)[index], found[index], tolerance) for index, one in enumerate(alone)
    ):
        return NotAffine("one element's density depends on another")
    log_prob = stacked(by_element, zero, generator)
    predictor = LinearPredictor(torch.eye(shared.size).to(zero), zero, log_prob, 1.0)
    width = resolve_width(log_prob, [zero])
    return predictor._replace(width=MIN_WIDTH, smooth=False) if width is None else predictor._replace(width=width)


def _with(zero: Tensor, index: int, value: Tensor) -> Tensor:
    return torch.where(torch.arange(len(zero), device=zero.device) == index, value, zero)


def element_log_prob(program: Program, batch: Batch, x: Tensor) -> Tensor:
    """log p of every element of x ``[size]``, its Jacobian included, ``[size]``."""
    shared = program.shared
    values, pieces = shared.constrain(x), shared.pieces(x)
    with running(x.dtype), Placeholders(x.device), Values(values):
        nodes = poutine.trace(program.model).get_trace(*batch.args, **batch.kwargs).nodes
    parts = []
    for site in shared.sites:
        fn = nodes[site.name]["fn"]
        while isinstance(fn, torch.distributions.Independent):
            fn = fn.base_dist
        density = fn.log_prob(values[site.name]) * nodes[site.name]["scale"]
        parts.append((density + _jacobian(site)(pieces[site.name])).reshape(site.size))
    return torch.cat(parts)


def _jacobian(site: SiteCoordinates) -> Callable[[Tensor], Tensor]:
    transform = site.transform
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform

    def log_abs_det(piece: Tensor) -> Tensor:
        u = piece.reshape(site.unconstrained_shape)
        return u.new_zeros(u.shape) if site.is_real else transform.log_abs_det_jacobian(u, transform(u))

    return log_abs_det
