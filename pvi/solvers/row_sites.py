"""One factor a row of a generalised linear model: its cavity, its tilted distribution, its refinement (power EP).

Row i's factor is a product of exp(ν_ij u_j - ½ τ_ij u_j²) over coordinates u_j in which its predictor is linear,
f_i = c_i + Σ_j x_ij u_j. With full covariance there is one such coordinate, f_i - c_i: two numbers a row. With
independent coordinates they are θ_1, ..., θ_d: the tilted distribution is projected onto its exact marginals.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pvi.families import DiagonalGaussian, FullGaussian, GaussianFamily, Product
from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor, NotAffine
from pvi.solvers.tilted import Window, around, tilt


class Sites(NamedTuple):
    """ν and τ of every row's factor, each ``[n, k]``; τ may be negative."""

    linear: Tensor
    precision: Tensor


class Layout(Protocol):
    """In which coordinates the rows' factors live: k a row."""

    @property
    def predictor(self) -> LinearPredictor:
        """The client's, over all latents."""

    @property
    def loadings(self) -> Tensor:
        """x, ``[n, k]``."""

    def marginals(self, natural: Tensor) -> Sites:
        """Precision-weighted means and precisions of the coordinates under q, each ``[n, k]``."""

    def factor(self, sites: Sites) -> Tensor:
        """η of the product of all rows' factors."""


@dataclass(frozen=True)
class PredictorLayout:
    """Full covariance: the coordinate of a row is its predictor less the offset, u = A θ."""

    family: GaussianFamily
    predictor: LinearPredictor

    @property
    def loadings(self) -> Tensor:
        """Ones, ``[n, 1]``."""
        return torch.ones_like(self.predictor.offset)[:, None]

    def marginals(self, natural: Tensor) -> Sites:
        """Of A θ; a row without any latent counts as N(0, 1)."""
        loc = self.predictor.design @ self.family.location(natural)
        variance = self.family.predictor_variance(natural, self.predictor.design)
        variance = torch.where(is_flat(self), torch.ones_like(variance), variance)
        return Sites((loc / variance)[:, None], variance.reciprocal()[:, None])

    def factor(self, sites: Sites) -> Tensor:
        """η of exp(Σ ν_i u_i - ½ τ_i u_i²)."""
        gradient = self.predictor.design.mT @ sites.linear[:, 0]
        return self.family.quadratic(gradient, self.predictor.design, sites.precision[:, 0], torch.zeros_like(gradient))


@dataclass(frozen=True)
class CoordinateLayout:
    """Independent coordinates: those of θ, ``[n, d]``."""

    family: GaussianFamily
    predictor: LinearPredictor

    @property
    def loadings(self) -> Tensor:
        """The design, ``[n, d]``."""
        return self.predictor.design

    def marginals(self, natural: Tensor) -> Sites:
        """Of θ, the same for all rows."""
        loc, precision = self.family.location(natural), self.family.variance(natural).reciprocal()
        shape = self.predictor.design.shape
        return Sites((loc * precision).expand(shape), precision.expand(shape))

    def factor(self, sites: Sites) -> Tensor:
        """η of exp(Σ_ij ν_ij θ_j - ½ τ_ij θ_j²)."""
        gradient = sites.linear.sum(0)
        unit = torch.eye(len(gradient), dtype=gradient.dtype, device=gradient.device)
        return self.family.quadratic(gradient, unit, sites.precision.sum(0), torch.zeros_like(gradient))


class Refinement(NamedTuple):
    """The rows' new factors and their curvatures ``[n]`` in the predictor.

    ``log_scale`` is Σ (1/α) log ∫ q (p / t)^α with the old factors, nats; ``skipped`` counts the rows that kept their
    factor, as their cavity was improper or their tilted distribution could not be found.
    """

    sites: Sites
    weights: Tensor
    log_scale: Tensor
    skipped: int
    window: Window


class NoLayout(NamedTuple):
    """Why rows cannot have factors of their own, in words for the user."""

    reason: str


def find_layout(problem: LocalProblem) -> Layout | NoLayout:
    """The layout of a generalised linear model's factors under a Gaussian family, or why there is none."""
    if isinstance(problem.predictor, NotAffine):
        return NoLayout(f"it needs a generalised linear model, but {problem.predictor.reason}")
    members = problem.family.members if isinstance(problem.family, Product) else (problem.family,)
    if all(isinstance(member, DiagonalGaussian) for member in members):
        return CoordinateLayout(problem.family, problem.predictor)
    if len(members) == 1 and isinstance(members[0], FullGaussian):
        return PredictorLayout(problem.family, problem.predictor)
    return NoLayout(
        "it needs one full-covariance Gaussian over all latents (guide='full') or independent ones throughout "
        f"(guide=None), but q's members are {[type(member).__name__ for member in members]}"
    )


def is_flat(layout: Layout) -> Tensor:
    """Rows whose likelihood no latent enters, ``[n]``."""
    return (layout.predictor.design == 0).all(1)


def empty(layout: Layout) -> Sites:
    """All factors 1."""
    zero = torch.zeros_like(layout.loadings)
    return Sites(zero, zero)


def refine(layout: Layout, natural: Tensor, sites: Sites, alpha: float, window: Window | None) -> Refinement:
    """(projection of q (p_i / t_i)^α / its cavity)^(1/α) for every row i, all from the same q."""
    predictor, x, flat = layout.predictor, layout.loadings, is_flat(layout)
    q = layout.marginals(natural)
    cavity = Sites(q.linear - alpha * sites.linear, q.precision - alpha * sites.precision)
    proper = (cavity.precision > 0).all(1)
    # What is computed for skipped rows is not used, but must be finite: q itself is.
    cavity = Sites(*(torch.where(proper[:, None], own, whole) for own, whole in zip(cavity, q, strict=True)))
    means, variances = cavity.linear / cavity.precision, cavity.precision.reciprocal()
    loc = (x * means).sum(1) + predictor.offset
    variance = torch.where(flat, torch.ones_like(loc), (x.square() * variances).sum(1))
    window = around(loc, variance) if window is None else window
    tilted, window = tilt(predictor.log_prob, loc, variance, alpha, predictor.width, window)
    used = (proper & tilted.found & ~flat)[:, None]
    shrink = 1 - alpha * variances * x.square() * tilted.curvature[:, None]
    weights = tilted.curvature[:, None] * x.square() / shrink
    linear = (tilted.slope[:, None] * x) / shrink + weights * means
    new = Sites(torch.where(used, linear, sites.linear), torch.where(used, weights, sites.precision))
    curvature = torch.where(used[:, 0], tilted.curvature / shrink.amin(1), torch.zeros_like(loc))
    log_scale = loc.new_zeros(())
    if alpha > 0:
        scale = (tilted.log_normaliser + _log_partition(cavity) - _log_partition(q)) / alpha
        log_scale = torch.where(flat, predictor.log_prob(predictor.offset), scale).sum()
    skipped = int((~used[:, 0] & ~flat).sum())
    return Refinement(new, curvature, log_scale, skipped, window)


def _log_partition(sites: Sites) -> Tensor:
    """Σ_j log ∫ exp(ν_j u - ½ τ_j u²) du, ``[n]``, nats."""
    linear, precision = sites
    return 0.5 * (linear.square() / precision - precision.log() + math.log(2 * math.pi)).sum(1)
