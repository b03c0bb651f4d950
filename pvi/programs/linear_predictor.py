"""Recognise a generalised linear model by evaluating it: one predictor f = A x + c a row, and log p(y_i | f_i).

Nothing is assumed about the program. What makes the exact one-dimensional expectations valid is checked numerically:
f is affine in the unconstrained shared latents, the likelihood depends on them through f alone, row i of the likelihood
depends on f_i alone, and it is smooth enough in f_i for quadrature.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import constraints

from pvi.programs.batch import Batch
from pvi.programs.program import Program, log_likelihood
from pvi.programs.row_likelihood import close, evaluate_predictor, observed_value, predictor_at, row_log_prob, stacked
from pvi.quadrature import MAX_ELEMENTS, expectations, expected_curvature, expected_value

MAX_SIZE = 1024
MIN_WIDTH = 1 / 64


class LinearPredictor(NamedTuple):
    """f = design @ x + offset; ``log_prob`` maps f ``[n]`` or ``[k, n]`` to log p(y_i | f_i), as many, in nats.

    It is safe under ``vmap``. ``width`` is the length over which log p varies, as quadrature needs to know it: 1 for
    the logistic function. ``smooth`` says that log p has no kinks in f.
    """

    design: Tensor
    offset: Tensor
    log_prob: Callable[[Tensor], Tensor]
    width: float
    smooth: bool = True


class NotAffine(NamedTuple):
    """Why a program is no generalised linear model, in words for the user."""

    reason: str


def find_predictor(program: Program, batch: Batch, like: Tensor) -> LinearPredictor | NotAffine:
    """The client's linear predictor over the shared latents, or the reason why there is none.

    ``like`` is any tensor of the dtype and device to compute in. Costs one evaluation of the model's predictor
    at ``size`` points; tried up to 1,024 latents, beyond which dense linear algebra is no longer cheap.
    """
    size = program.coordinates.size
    if size > MAX_SIZE:
        return NotAffine(f"{size} latents are more than the {MAX_SIZE} for which dense linear algebra is cheap")
    observed = [site.name for site in program.sites.observed]
    if program.sites.subsampling or program.sites.enumerated or program.likelihood_sites != {observed[0]}:
        return NotAffine(
            "it has a plate that subsamples, several observed sites, discrete latents, or private latents whose prior "
            "lies outside the guide's family"
        )
    generator = torch.Generator(device=like.device).manual_seed(0)
    zero = like.new_zeros(size)
    try:
        offset = evaluate_predictor(program, batch, zero)
    except RuntimeError as error:
        return NotAffine(f"its predictor cannot be evaluated: {error}")
    if offset is None:
        return NotAffine(
            "its observed site is not a Bernoulli, Binomial, Poisson, Normal or StudentT and no "
            'pyro.deterministic("linear_predictor", f) marks the predictor'
        )
    rows = offset.shape
    if len(rows) != 1 or rows[0] != batch.num_rows:
        return NotAffine(f"its predictor has shape {tuple(rows)} where one number a row is needed")

    def log_prob(f: Tensor, x: Tensor = zero) -> Tensor:
        return row_log_prob(program, batch, x, f)

    predictor = LinearPredictor(_probe(program, batch, offset, size), offset, log_prob, 1.0)
    refused = _verify(program, batch, predictor, log_prob, generator)
    if refused is not None:
        return refused
    return _resolve(program, batch, predictor._replace(log_prob=stacked(log_prob, offset, generator)))


def _probe(program: Program, batch: Batch, offset: Tensor, size: int) -> Tensor:
    """A ``[n, size]``: what each unit vector adds to the predictor. Its columns lie end to end in memory."""
    units = torch.eye(size, dtype=offset.dtype, device=offset.device)
    chunk = max(1, MAX_ELEMENTS // max(1, len(offset)))
    try:
        found = torch.func.vmap(lambda x: predictor_at(program, batch, x), chunk_size=chunk)(units)
    except RuntimeError:
        # Control flow on values, or an operation without a batching rule.
        found = torch.stack([predictor_at(program, batch, x) for x in units])
    return (found - offset).contiguous().mT


def _verify(
    program: Program,
    batch: Batch,
    predictor: LinearPredictor,
    log_prob: Callable[..., Tensor],
    generator: torch.Generator,
) -> NotAffine | None:
    design, offset = predictor.design, predictor.offset
    tolerance = 1e4 * torch.finfo(offset.dtype).eps

    def random(n: int) -> Tensor:
        return torch.randn(n, generator=generator, dtype=offset.dtype, device=offset.device)

    for _ in range(3):
        x = random(design.shape[1])
        expected, found = design @ x + offset, predictor_at(program, batch, x)
        if not close(found, expected, tolerance):
            residual = (found - expected).abs().max().item()
            return NotAffine(f"its predictor is not affine in the latents (residual {residual:.2g})")
    if log_prob(offset).shape != offset.shape:
        return NotAffine("its log likelihood does not have one number a row")
    first, second, x = random(len(offset)), random(len(offset)), random(design.shape[1])
    if not close(log_prob(first, x), log_prob(first), tolerance):
        return NotAffine("its likelihood depends on the latents in another way than through the predictor")
    odd = torch.arange(len(offset), device=offset.device) % 2 == 1
    mixed = torch.where(odd, log_prob(first), log_prob(second))
    if not close(log_prob(torch.where(odd, first, second)), mixed, tolerance):
        return NotAffine("the likelihood of a row depends on the predictor of other rows")
    true = row_log_prob(program, batch, x, None)
    if true.shape != offset.shape or not close(log_prob(design @ x + offset), true, tolerance):
        return NotAffine("its likelihood at the predictor is not its likelihood")
    # A mask over a whole event reaches the program's likelihood, but not its rows.
    if not close(true.sum(), log_likelihood(program, x, batch), tolerance * max(1.0, true.abs().sum().item())):
        return NotAffine("the likelihoods of its rows do not add up to its likelihood")
    return None


def _resolve(program: Program, batch: Batch, predictor: LinearPredictor) -> LinearPredictor | NotAffine:
    """The predictor with the largest width that resolves its likelihood, or the reason why there is none.

    Around x = 0, and around the observations where they are real numbers (location families peak there), half the width
    must give the same expectations, and E[∂²log p/∂f²] by autodiff must be what Stein's identity E[log p (z² - 1)] / s²
    says: a kink hides from autodiff.
    """
    centres = [predictor.offset]
    site = program.sites.observed[0]
    support = site.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is constraints.real and site.shape == predictor.offset.shape:
        centres.append(observed_value(program, batch, predictor.offset))
    width = resolve_width(predictor.log_prob, centres)
    if width is None:
        return NotAffine("its likelihood is too narrow, or not smooth enough, in the predictor for quadrature")
    return predictor._replace(width=width)


def resolve_width(log_prob: Callable[[Tensor], Tensor], centres: list[Tensor]) -> float | None:
    """The largest width that resolves ``log_prob`` around the centres; ``None`` where it is too narrow or kinked."""
    tolerance = 1e-7 if centres[0].dtype == torch.float64 else 1e-3
    width = 1.0
    while width >= MIN_WIDTH:
        if all(_resolved(log_prob, centre, width, tolerance) for centre in centres):
            return width
        width /= 2
    return None


def _resolved(log_prob: Callable[[Tensor], Tensor], centre: Tensor, width: float, tolerance: float) -> bool:
    one = torch.ones_like(centre)
    rough = expectations(log_prob, centre, one, width)
    return close(rough.value, expected_value(log_prob, centre, one, width / 2), tolerance) and close(
        rough.stein, expected_curvature(log_prob, centre, one, width), 100 * tolerance
    )


__all__ = ["MAX_SIZE", "LinearPredictor", "NotAffine", "find_predictor", "predictor_at", "row_log_prob"]
