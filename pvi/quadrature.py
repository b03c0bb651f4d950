"""Expectations of a smooth function under a one-dimensional Gaussian."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MAX_ELEMENTS = 4_000_000
"""Numbers in one vmapped evaluation: bounds the memory."""
MAX_NODES = 2048
REACH, MAX_REACH = 8.0, 12.0
"""The range in standard deviations: at least, and at most."""


def gaussian_quadrature(scale: float, width: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes z and weights of E[g(s z)], z ~ N(0, 1), for g that varies over lengths of ``width``; each ``[nodes]``.

    The trapezoidal rule: on an analytic g with singularities at distance a from the real line its error is
    exp(-2π a / (s h)) at step h (Trefethen and Weideman, 2014); a = π for the logistic function, which has width 1 here
    and gets an error of about 1e-10. Gauss-Hermite nodes are as good for s up to 2, but at s = 10 it takes a thousand
    of them. The range grows with s, for g as steep as exp. At most 2,048 nodes.
    """
    step = min(0.5, 0.8 * width / max(scale, 1e-3))
    reach = REACH + min(scale, MAX_REACH - REACH)
    half = min(math.ceil(reach / step), MAX_NODES // 2)
    nodes = torch.linspace(-reach, reach, 2 * half + 1, dtype=like.dtype, device=like.device)
    return nodes, torch.softmax(-0.5 * nodes.square(), 0)


class RowExpectations(NamedTuple):
    """E[log p(y_i | f_i)] and the expectations of its first two derivatives, each ``[n]``, in nats.

    ``stein`` is E[log p (z² - 1)], equal to s² times the second where log p is smooth.
    """

    value: Tensor
    first: Tensor
    second: Tensor
    stein: Tensor


def expectations(log_prob: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, width: float) -> RowExpectations:
    """Expectations for f_i ~ N(loc_i, scale_i²), each ``[n]``; ``log_prob`` maps f ``[n]`` to ``[n]``, row by row."""
    nodes, weights = gaussian_quadrature(scale.max().item(), width, loc)

    # Rows are independent, so derivatives of the sum are the rows' own; one run of the program gives all three.
    def value(f: Tensor) -> tuple[Tensor, Tensor]:
        rows = log_prob(f)
        return rows.sum(), rows

    def slope(f: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        first, rows = torch.func.grad(value, has_aux=True)(f)
        return first.sum(), (first, rows)

    def at(node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        second, (first, rows) = torch.func.grad(slope, has_aux=True)(loc + scale * node)
        return rows, first, second

    chunk = max(1, MAX_ELEMENTS // max(1, len(loc)))
    values, firsts, seconds = torch.func.vmap(at, chunk_size=chunk)(nodes)
    return RowExpectations(
        weights @ values, weights @ firsts, weights @ seconds, (weights * (nodes.square() - 1)) @ values
    )
