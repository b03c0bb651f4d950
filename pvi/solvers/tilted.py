"""One-dimensional tilted distributions r(f) ∝ N(f; m, v) p(y | f)^α, and what moment matching needs of them.

The trapezoidal rule on a window that holds all of r: its error falls exponentially with the number of nodes, as r
vanishes at both ends with all its derivatives. The window is found by looking: it is narrowed to where r is, moved
where r leaves it, and kept for the next, similar, distribution.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

NODES, MAX_NODES = 64, 2048
DEPTH = 36.0
"""The window ends where r has fallen below exp of minus this of its largest value."""
FILLED = 3
"""r must fill one part in so many of its window: a Gaussian then has a node every 0.8 standard deviations at least."""
STEP = 0.4
"""Distance of two nodes at most, in widths of log p: the logistic function has poles at π."""
MARGIN = 0.1
MAX_LOOKS = 60
CHUNK = 400_000
"""Numbers in one evaluation: larger ones only leave the cache."""


class Window(NamedTuple):
    """Where each row's r is looked for, each ``[n]``."""

    low: Tensor
    high: Tensor


class Tilted(NamedTuple):
    """Each ``[n]``, with ℓ = log p: log ∫ N(f; m, v) p^α df in nats, E_r[ℓ'] = g, -Cov_r(f, ℓ') / v = κ.

    Integration by parts makes the mean m + α v g and the variance v (1 - α v κ), with no difference of nearly equal
    numbers for small α; at α = 0 κ is -E[ℓ''] (Stein's identity). ``found`` is false where no window holds r.
    """

    log_normaliser: Tensor
    slope: Tensor
    curvature: Tensor
    found: Tensor


def around(loc: Tensor, variance: Tensor) -> Window:
    """The window of N(loc, variance) itself."""
    reach = math.sqrt(2 * DEPTH) * variance.sqrt()
    return Window(loc - reach, loc + reach)


def tilt(
    log_prob: Callable[[Tensor], Tensor], loc: Tensor, variance: Tensor, alpha: float, width: float, window: Window
) -> tuple[Tilted, Window]:
    """The tilted distributions of rows with cavities N(loc_i, variance_i), each ``[n]``, looked for in ``window``.

    ``log_prob`` maps f ``[k, n]`` to log p(y_i | f_i), as many; ``width`` is the length over which it varies. Returns
    the windows that held them too. Carries no gradient.
    """
    for _ in range(MAX_LOOKS):
        nodes = _nodes(window, width)
        values, slopes = _evaluate(log_prob, nodes)
        logs = alpha * values - 0.5 * (nodes - loc).square() / variance
        inside = logs > logs.max(0).values - DEPTH
        narrower, held = _look(nodes, inside)
        if bool((held | logs.isnan().any(0)).all()):
            break
        window = Window(*(torch.where(held, old, new) for old, new in zip(window, narrower, strict=True)))
    step = (window.high - window.low) / (len(nodes) - 1)
    total = torch.logsumexp(logs, 0)
    weights = (logs - total).exp()
    slope = (weights * slopes).sum(0)
    mean = (weights * nodes).sum(0)
    curvature = -(weights * (nodes - mean) * (slopes - slope)).sum(0) / variance
    log_normaliser = total + step.log() - 0.5 * (2 * math.pi * variance).log()
    return Tilted(log_normaliser, slope, curvature, held), narrower


def _nodes(window: Window, width: float) -> Tensor:
    """Equally spaced nodes ``[k, n]``."""
    reach = (window.high - window.low).max().item()
    number = max(NODES, math.ceil(min(reach / (STEP * width), MAX_NODES)))
    unit = torch.linspace(0, 1, number, dtype=window.low.dtype, device=window.low.device)
    return window.low + unit[:, None] * (window.high - window.low)


def _evaluate(log_prob: Callable[[Tensor], Tensor], nodes: Tensor) -> tuple[Tensor, Tensor]:
    """log p and its slope at the nodes, both ``[k, n]``."""
    values, slopes = [], []
    for part in nodes.split(max(1, CHUNK // nodes.shape[1])):
        with torch.enable_grad():
            f = part.detach().requires_grad_()
            rows = log_prob(f)
            (slope,) = torch.autograd.grad(rows.sum(), f)
        values.append(rows.detach())
        slopes.append(slope)
    return torch.cat(values), torch.cat(slopes)


def _look(nodes: Tensor, inside: Tensor) -> tuple[Window, Tensor]:
    """The window to look in next, and whether this one holds r, finely enough."""
    number = len(nodes)
    first = inside.to(torch.int8).argmax(0)
    last = number - 1 - inside.flip(0).to(torch.int8).argmax(0)
    low, high = nodes[0], nodes[-1]
    step, reach = (high - low) / (number - 1), high - low
    held = (first > 0) & (last < number - 1) & (FILLED * (last - first) >= number) & inside.any(0)
    margin = step + MARGIN * (last - first) * step
    narrow = Window(low + first * step - margin, low + last * step + margin)
    wide = Window(low - reach, high + reach)
    return Window(
        torch.where(first > 0, narrow.low, wide.low), torch.where(last < number - 1, narrow.high, wide.high)
    ), held
