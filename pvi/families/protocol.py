"""What an exponential family must offer, and what follows from it for every family.

A member of a family over a flat real vector x of length ``size`` is

    q(x) = exp(η·T(x) - A(η))

with respect to Lebesgue (or counting) measure: every constant lives in the log partition A, so that products of
members are sums of η and evidences come out right. A *factor* exp(η·T(x)) needs no finite A(η); it may be improper.

Every function acts on the last axis and broadcasts over the axes before it.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Family(Protocol):
    """An exponential family on natural-parameter tensors of shape ``[..., num_natural]``."""

    @property
    def size(self) -> int:
        """Length of the vector x."""

    @property
    def num_natural(self) -> int:
        """Length of a natural-parameter vector: the family is minimal."""

    @property
    def num_free(self) -> int:
        """Length of an unconstrained parameter vector (what optimisers move)."""

    def statistics(self, x: Tensor) -> Tensor:
        """T(x), ``[..., size] -> [..., num_natural]``."""

    def log_partition(self, natural: Tensor) -> Tensor:
        """A(η) in nats, ``[..., num_natural] -> [...]``; infinite where η is improper."""

    def mean_parameters(self, natural: Tensor) -> Tensor:
        """μ = E[T(x)] = ∇A(η), ``[..., num_natural]``."""

    def natural_from_mean(self, mean: Tensor) -> Tensor:
        """The inverse of :meth:`mean_parameters`."""

    def natural_gradient(self, natural: Tensor, gradient: Tensor) -> Tensor:
        """F(η)⁻¹ g with F = ∂μ/∂η the Fisher information, both ``[..., num_natural]``.

        With g = ∇_η f it is ∇_μ f, the direction of the fixed-point iteration.
        """

    def moments(self, natural: Tensor) -> tuple[Tensor, Tensor]:
        """E[x] and Var[x] of every coordinate, each ``[..., size]``."""

    def standard(self, natural: Tensor) -> dict[str, Tensor]:
        """The textbook parameters by name."""

    @property
    def natural_from_standard(self) -> Callable[..., Tensor]:
        """The inverse of :meth:`standard`, called with its entries as keyword arguments."""

    def free(self, natural: Tensor) -> Tensor:
        """Unconstrained coordinates of a proper η, ``[..., num_free]``."""

    def natural_from_free(self, free: Tensor) -> Tensor:
        """The inverse of :meth:`free`: any real vector gives a proper η."""

    def free_scale(self, natural: Tensor) -> Tensor:
        """The size of a natural step in each unconstrained coordinate near a proper η, ``[num_free]``."""

    def is_proper(self, natural: Tensor) -> Tensor:
        """Whether A(η) is finite, a boolean tensor ``[...]``."""

    def boundary(self, natural: Tensor, delta: Tensor) -> Tensor:
        """The largest f (infinite where there is none) such that η + f'·δ is proper for every f' in [0, f)."""

    def sample(
        self, natural: Tensor, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draws ``[*sample_shape, ..., size]``, reparameterised and so differentiable in η unless x is discrete."""

    def distribution(self, natural: Tensor, shape: tuple[int, ...] | None = None) -> torch.distributions.Distribution:
        """The same law as a ``torch.distributions`` object whose events have ``shape`` (default ``(size,)``)."""

    def marginal(self, natural: Tensor, start: int, stop: int) -> "tuple[Family, Tensor]":
        """The law of x[start:stop], a member of a smaller family, and its η."""

    def interior(self, like: Tensor) -> Tensor:
        """A point ``[size]`` inside the support, of the dtype and device of ``like``."""

    def recover(self, log_density: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """η of a log density ``[size] -> []`` that is known to be η·T(x) + constant.

        ``like`` is any tensor of the wanted dtype and device. The caller verifies: outside the family the result
        means nothing.
        """


@runtime_checkable
class GaussianFamily(Family, Protocol):
    """A family of Gaussians with a given precision structure, as the deterministic solvers need it."""

    def location(self, natural: Tensor) -> Tensor:
        """The mean m, ``[..., size]``."""

    def variance(self, natural: Tensor) -> Tensor:
        """The diagonal of the covariance, ``[..., size]``."""

    def from_noise(self, natural: Tensor, noise: Tensor) -> Tensor:
        """m + S ε with S Sᵀ the covariance, for standard normal ``noise [..., size]``; broadcasts over leading axes."""

    def draw(self, free: Tensor, noise: Tensor) -> Tensor:
        """m + L ε at free coordinates ``[..., num_free]``, for standard normal ``noise [..., size]``; L Lᵀ = Σ."""

    def free_regulariser(self, free: Tensor, cavity: Tensor) -> Tensor:
        """E_q[log cavity] + H[q] in nats, ``[...]``, at free coordinates; the cavity exp(η_cav·T) may be improper."""

    def predictor_variance(self, natural: Tensor, design: Tensor, squares: Tensor | None = None) -> Tensor:
        """Variances of the rows of A x, ``design [..., n, size] -> [..., n]``; ``squares`` is A² if it is at hand."""

    def quadratic(
        self, gradient: Tensor, design: Tensor, weights: Tensor, at: Tensor, squares: Tensor | None = None
    ) -> Tensor:
        """η of exp(g·(x - a) - ½ Σ w_i (A_i·(x - a))²), its curvature restricted to the family's structure.

        ``weights [..., n]``; ``squares`` is A² where it is at hand.
        """

    def relocate(self, natural: Tensor, loc: Tensor) -> Tensor:
        """η with the same precision and the mean ``loc [..., size]``."""

    def precision_matrix(self, natural: Tensor) -> Tensor:
        """Λ as a dense matrix ``[..., size, size]``, improper factors' included."""


@runtime_checkable
class DiscreteFamily(Family, Protocol):
    """A family over finitely many values, whose draws have no derivative."""

    def enumerate(self, like: Tensor | None = None) -> Tensor:
        """All values of x, ``[n, size]``; raises ``ValueError`` for more than 2^16.

        ``like`` is any tensor of the wanted dtype and device (default: torch's defaults).
        """


def log_prob(family: Family, natural: Tensor, x: Tensor) -> Tensor:
    """log q(x) = η·T(x) - A(η) in nats."""
    return (natural * family.statistics(x)).sum(-1) - family.log_partition(natural)


def entropy(family: Family, natural: Tensor) -> Tensor:
    """H[q] = A(η) - η·μ in nats."""
    return family.log_partition(natural) - (natural * family.mean_parameters(natural)).sum(-1)


def kl(family: Family, q: Tensor, p: Tensor) -> Tensor:
    """KL(q, p) = (η_q - η_p)·μ_q - A(η_q) + A(η_p) in nats; both must be proper."""
    inner = ((q - p) * family.mean_parameters(q)).sum(-1)
    return inner - family.log_partition(q) + family.log_partition(p)


def expected_log_factor(family: Family, q: Tensor, factor: Tensor) -> Tensor:
    """E_q[log t] = η_t·μ_q in nats for a factor t(x) = exp(η_t·T(x)), which may be improper."""
    return (factor * family.mean_parameters(q)).sum(-1)


def cross_entropy(family: Family, q: Tensor, factor: Tensor) -> Tensor:
    """-E_q[log t] in nats for a factor t(x) = exp(η_t·T(x)), which may be improper."""
    return -expected_log_factor(family, q, factor)


def largest_step(family: Family, natural: Tensor, delta: Tensor, margin: float = 0.01) -> Tensor:
    """The fraction of δ to apply: 1 where η + δ is proper, else just short of the boundary.

    A Gaussian on the boundary has an infinite variance, so the step stops the fraction ``margin`` before it.
    Nothing else is changed: the direction stays and the caller records the fraction.
    """
    boundary = family.boundary(natural, delta)
    fraction = torch.where(boundary > 1, torch.ones_like(boundary), (1 - margin) * boundary)
    # An update that ends barely inside the boundary is legal; rounding may still refuse it.
    for _ in range(60):
        proper = family.is_proper(natural + fraction[..., None] * delta)
        if bool(proper.all()):
            break
        fraction = torch.where(proper, fraction, fraction / 2)
    return fraction
