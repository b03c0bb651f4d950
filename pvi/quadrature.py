"""Expectations of a smooth function under a one-dimensional Gaussian."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

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


def rules(ratios: Sequence[float], like: Tensor, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """:func:`gaussian_quadrature` for several scales / widths, each ``[m, nodes]``: shorter rules end in weights of 0.

    The number of nodes is a multiple of ``multiple``.
    """
    if max(ratios) <= 1:
        table, numbers = _gauss_hermite_rules(like.dtype, like.device), [hermite_order(ratio) for ratio in ratios]
        chosen = torch.tensor(numbers, device=like.device)
        length = -(-max(numbers) // multiple) * multiple
        nodes, weights = table[0, chosen, :length], table[1, chosen, :length]
        return pad(nodes, (0, length - nodes.shape[1])), pad(weights, (0, length - weights.shape[1]))
    found = [gaussian_quadrature(ratio, 1.0, like) for ratio in ratios]
    length = -(-max(len(nodes) for nodes, _ in found) // multiple) * multiple
    padded = [[pad(value, (0, length - len(value))) for value in parts] for parts in zip(*found, strict=True)]
    return torch.stack(padded[0]), torch.stack(padded[1])


@cache
def _gauss_hermite_rules(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Nodes and weights of every order, ``[2, orders, nodes]``, filled up with zeros."""
    longest = hermite_order(1.0)
    table = torch.zeros(2, longest + 1, longest, dtype=torch.float64)
    for number in range(1, longest + 1):
        table[0, number, :number], table[1, number, :number] = _gauss_hermite(number)
    return table.to(device, dtype)


class RowExpectations(NamedTuple):
    """E[log p(y_i | f_i)] and the expectations of its first two derivatives, each ``[..., n]``, in nats.

    ``second`` is E[(log p)' z] / s and ``stein`` is E[log p (z² - 1)], equal to s² times the second derivative's
    expectation where log p is smooth (Stein's identity).
    """

    value: Tensor
    first: Tensor
    second: Tensor
    stein: Tensor


Sums = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""What :func:`weighted_sums` gives for a likelihood."""


def weighted_sums(
    log_prob: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, nodes: Tensor, even: Tensor, odd: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_k even_k log p and Σ_k odd_k (log p)' at f = loc + scale z_k, each ``[m, 2, n]``.

    ``loc`` and ``scale`` are ``[m, n]``, ``nodes [k, m]``, ``even`` and ``odd [m, 2, k]``; ``log_prob`` maps f
    ``[k, m n]`` to as many, row by row: one run of the program and one backward pass serve all nodes.
    """
    with torch.enable_grad():
        f = (loc + scale * nodes[..., None]).flatten(1).detach().requires_grad_()
        rows = log_prob(f)
        (slope,) = torch.autograd.grad(rows.sum(), f)
    by_client = [value.detach().unflatten(1, loc.shape).transpose(0, 1) for value in (rows, slope)]
    return even @ by_client[0], odd @ by_client[1]


def expectations(log_prob: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, width: float) -> RowExpectations:
    """Expectations for f_i ~ N(loc_i, scale_i²), each ``[n]``; carries no gradient.

    ``log_prob`` maps f ``[k, n]`` to ``[k, n]``, row by row.
    """
    found = many_expectations(partial(weighted_sums, log_prob), loc[None], scale[None], [width])
    return RowExpectations(*[value[0] for value in found])


def many_expectations(
    sums: Sums, loc: Tensor, scale: Tensor, widths: Sequence[float], at_once: int | None = None
) -> RowExpectations:
    """:func:`expectations` of m clients' rows, ``[m, n]``, each client with the nodes that it needs.

    ``sums`` is called for ``at_once`` nodes a time, for as many as memory allows if that is ``None``.

    The second derivative follows by Stein's identity, whose rounding grows as 1 / scale; a scale below
    width · eps^(3/8), about 1e-6 in float64, counts as that, which moves expectations by 1e-12 of the curvature.
    """
    least = torch.finfo(scale.dtype).eps ** 0.375
    smallest = scale.new_tensor(widths)[:, None] if len(widths) > 1 else widths[0]
    scale = scale.clamp(min=least * smallest)
    ratios = [largest / width for largest, width in zip(scale.amax(-1).tolist(), widths, strict=True)]
    nodes, weights = rules(ratios, loc, at_once or 1)
    even = torch.stack([weights, weights * (nodes.square() - 1)], 1)
    odd = torch.stack([weights, weights * nodes], 1)
    size = at_once or max(1, MAX_ELEMENTS // max(1, loc.numel()))
    pieces = zip(nodes.mT.contiguous().split(size), even.split(size, -1), odd.split(size, -1), strict=True)
    parts = [sums(loc, scale, *piece) for piece in pieces]
    values, slopes = parts[0]
    for more, steeper in parts[1:]:
        values, slopes = values + more, slopes + steeper
    return RowExpectations(values[:, 0], slopes[:, 0], slopes[:, 1] / scale, values[:, 1])


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
