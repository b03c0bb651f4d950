"""Expectations of a smooth function under a one-dimensional Gaussian."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

MAX_ELEMENTS = 4_000_000
"""Numbers in one evaluation of a program: bounds the memory. Smaller pieces only run the program more often."""
MAX_NODES = 2048
ACCURACY = 25.0
"""The trapezoidal rule's error bound is exp of minus this."""
REACH, MAX_REACH = 7.0, 12.0
"""The trapezoidal rule's range in standard deviations: at least, and at most."""


def gaussian_quadrature(scale: float, width: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes z and weights of E[g(s z)], z ~ N(0, 1), for g that varies over lengths of ``width``; each ``[nodes]``.

    ``width`` 1 stands for an analytic g with singularities at a distance of a = π from the real line, as the logistic
    function has. Up to s = 1 Gauss-Hermite needs the fewest nodes, 4 to 25. Beyond, where it would take hundreds, the
    trapezoidal rule does: its error at step h is exp(½ (a / s)² - 2π a / (s h)) (Trefethen and Weideman, 2014). Both
    are good to about 1e-10. The range grows with s, for g as steep as exp. At most 2,049 nodes.
    """
    ratio = scale / width
    if ratio <= 1:
        nodes, weights = _gauss_hermite(hermite_order(ratio))
        return nodes.to(like), weights.to(like)
    distance = math.pi / ratio
    step = 2 * math.pi * distance / (ACCURACY + distance**2 / 2)
    reach = REACH + min(ratio, MAX_REACH - REACH)
    half = min(math.ceil(reach / step), MAX_NODES // 2)
    nodes = torch.linspace(-reach, reach, 2 * half + 1, dtype=like.dtype, device=like.device)
    return nodes, torch.softmax(-0.5 * nodes.square(), 0)


def hermite_order(ratio: float) -> int:
    """Gauss-Hermite nodes for scale / width up to 1."""
    # Fitted to the logistic function: its expectations and those of its derivatives are then good to 5e-11.
    return math.ceil(4 + 12 * ratio + 9 * ratio**2)


@cache
def _gauss_hermite(number: int) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(number)
    return torch.as_tensor(nodes), torch.as_tensor(weights / weights.sum())


LADDER = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, *(1.25**k for k in range(1, 20)))
"""Scales / widths: rows up to the same one share nodes. Beyond the last one all have the most."""


class Rules(NamedTuple):
    """The quadratures of the ladder: ``nodes [classes, nodes]``, the shorter ones filled up with zeros.

    ``even`` holds the weights w and w (z² - 1), ``odd`` w and w z, each ``[classes, 2, nodes]``; ``lengths`` the
    numbers of nodes.
    """

    nodes: Tensor
    even: Tensor
    odd: Tensor
    lengths: tuple[int, ...]


@cache
def rules(dtype: torch.dtype, device: torch.device) -> Rules:
    """One quadrature for each class of :func:`classes`."""
    like = torch.zeros((), dtype=torch.float64)
    found = [gaussian_quadrature(ratio, 1.0, like) for ratio in (*LADDER, 1e9)]
    lengths = tuple(len(nodes) for nodes, _ in found)
    nodes, weights = (pad_sequence(list(parts), batch_first=True) for parts in zip(*found, strict=True))
    even = torch.stack([weights, weights * (nodes.square() - 1)], 1)
    odd = torch.stack([weights, weights * nodes], 1)
    return Rules(nodes.to(device, dtype), even.to(device, dtype), odd.to(device, dtype), lengths)


@cache
def _ladder(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(LADDER, dtype=dtype, device=device)


def classes(scale: Tensor, width: Tensor | float) -> Tensor:
    """Which quadrature of :func:`rules` each row takes: it depends on nothing but the row."""
    return torch.bucketize(scale / width, _ladder(scale.dtype, scale.device))


def clamped(scale: Tensor, width: Tensor | float) -> Tensor:
    """Scales below width · eps^(3/8), about 1e-6 in float64, count as that.

    Stein's identity rounds as 1 / scale; this moves expectations by 1e-12 of the curvature.
    """
    return scale.clamp(min=torch.finfo(scale.dtype).eps ** 0.375 * width)


class RowExpectations(NamedTuple):
    """E[log p(y_i | f_i)] and the expectations of its first two derivatives, each ``[..., n]``, in nats.

    ``second`` is E[(log p)' z] / s and ``stein`` is E[log p (z² - 1)], equal to s² times the second derivative's
    expectation where log p is smooth (Stein's identity).
    """

    value: Tensor
    first: Tensor
    second: Tensor
    stein: Tensor


def expectations(log_prob: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, width: float) -> RowExpectations:
    """Expectations for f_i ~ N(loc_i, scale_i²), each ``[n]``; carries no gradient.

    ``log_prob`` maps f ``[k, n]`` to ``[k, n]``, row by row: one run of the program and one backward pass serve all
    nodes. The second derivative follows by Stein's identity.
    """
    scale, table = clamped(scale, width), rules(scale.dtype, scale.device)
    own = classes(scale, width)
    number = int(own.max()) + 1
    length, size = max(table.lengths[:number]), max(1, MAX_ELEMENTS // max(1, len(loc)))
    sums = loc.new_zeros(2, 2 * number, len(loc))
    for start in range(0, length, size):
        piece = slice(start, min(start + size, length))
        with torch.enable_grad():
            nodes = table.nodes[:number, piece].mT.contiguous()
            f = (loc + scale * nodes.gather(1, own.expand(nodes.shape[0], -1))).detach().requires_grad_()
            rows = log_prob(f)
            (slope,) = torch.autograd.grad(rows.sum(), f)
        # The sums for all classes take less time than rows of every class apart.
        sums[0] += table.even[:number, :, piece].flatten(0, 1) @ rows.detach()
        sums[1] += table.odd[:number, :, piece].flatten(0, 1) @ slope
    (value, stein), (first, turned) = sums.unflatten(1, (number, 2)).gather(1, own.expand(2, 1, 2, -1))[:, 0]
    return RowExpectations(value, first, turned / scale, stein)


def expected_value(log_prob: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, width: float) -> Tensor:
    """E[log p(y_i | f_i)] alone, ``[n]``, in nats."""
    return torch.stack(
        [weights @ log_prob(loc + scale * nodes[:, None]) for nodes, weights in _chunks(loc, scale, width)]
    ).sum(0)


def expected_curvature(log_prob: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, width: float) -> Tensor:
    """E[∂²log p(y_i | f_i) / ∂f_i²] by automatic differentiation, ``[n]``, which does not see the kinks of log p."""
    total = torch.zeros_like(loc)
    for nodes, weights in _chunks(loc, scale, width):
        with torch.enable_grad():
            f = (loc + scale * nodes[:, None]).detach().requires_grad_()
            (slope,) = torch.autograd.grad(log_prob(f).sum(), f, create_graph=True)
            (curvature,) = torch.autograd.grad(slope.sum(), f)
        total += weights @ curvature
    return total


def _chunks(loc: Tensor, scale: Tensor, width: float) -> Iterator[tuple[Tensor, Tensor]]:
    nodes, weights = gaussian_quadrature(scale.max().item(), width, loc)
    size = max(1, MAX_ELEMENTS // max(1, len(loc)))
    return zip(nodes.split(size), weights.split(size), strict=True)
