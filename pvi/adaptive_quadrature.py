"""Gaussian integrals of densities, row by row: log E[g(f)] for positive g, wherever the integrand has its mass.

A fixed rule around the mean is right for log p, whose expectation has its mass where the Gaussian has it. p itself may
be steep, narrow against the Gaussian, or large where the Gaussian is small: the integrand is looked for first.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pvi.quadrature import MAX_ELEMENTS

TOLERANCE = 1e-9
"""Of an integral's value: a row's error in nats."""
DROP = 42.0
"""Nats below its peak where an integrand ends: exp(-42) is 6e-19."""
NEAR = 2.0
"""Nats that the integrand may fall from its peak to the next points of the search."""
REACH = 9.2
"""Standard deviations around the mean that are always covered: DROP nats of the Gaussian."""
SEARCHES, LEVELS, MOST = 80, 60, 500
"""Steps of a search; halvings of a panel; panels of one row that are halved at a time."""
FAR = 1000.0
"""Standard deviations within which an integrand that is zero around the mean is looked for."""

# The 15 Kronrod nodes in (-1, 1), symmetric, and their weights; every other one is a Gauss node (Piessens et al. 1983).
_NODES = (0.99145537112081263920, 0.94910791234275852452, 0.86486442335976907278,
          0.74153118559939443986, 0.58608723546769113029, 0.40584515137739716690,
          0.20778495500789846760, 0.0)  # fmt: skip
_KRONROD = (0.02293532201052922496, 0.06309209262997855329, 0.10479001032225018383,
            0.14065325971552591874, 0.16900472663926790282, 0.19035057806478540991,
            0.20443294007529889241, 0.20948214108472782801)  # fmt: skip
_GAUSS = (0.0, 0.12948496616886969327, 0.0, 0.27970539148927666790,
          0.0, 0.38183005050511894495, 0.0, 0.41795918367346938775)  # fmt: skip


class NotIntegrated(ArithmeticError):
    """A Gaussian integral that does not exist, or whose integrand is too rough."""


def log_expectation(
    log_g: Callable[[Tensor], Tensor], loc: Tensor, scale: Tensor, starts: Sequence[Tensor] = ()
) -> Tensor:
    """log E[g(f_i)] in nats for f_i ~ N(loc_i, scale_i²), each ``[n]``; carries no gradient.

    ``log_g`` maps f ``[k, n]`` to log g, as many, row by row. The integrand's peak is looked for from ``loc`` and from
    ``starts`` (each ``[n]``: where log g itself has a peak, if it may have one besides), and integrated from there by
    adaptive Gauss-Kronrod rules, good to about 1e-9 in float64. Rows whose g is 0 give -inf, and inf where g overflows.

    Raises :class:`NotIntegrated` where that accuracy is not reached.
    """

    def log_integrand(z: Tensor) -> Tensor:
        # In units of the scale, so that small scales round nothing.
        parts = [log_g(loc + scale * part) - part.square() / 2 for part in z.split(max(1, MAX_ELEMENTS // len(loc)))]
        return torch.cat(parts).nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)

    if not len(loc):
        return loc.clone()
    with torch.no_grad():
        spread = scale.clamp(min=torch.finfo(scale.dtype).tiny)
        centres = [torch.zeros_like(loc), *[((start - loc) / spread).clamp(-1e12, 1e12) for start in starts]]
        edges, peak = [loc.new_tensor([-REACH, REACH])[:, None].expand(2, len(loc))], torch.full_like(loc, -math.inf)
        for centre in centres:
            place, height, step = _find_peak(log_integrand, centre)
            peak = torch.maximum(peak, height)
            edges.append(_panels(log_integrand, place, height, step))
        # A row of infinite height is settled; so is one that is zero wherever it was looked for.
        shift = torch.where(peak.isfinite(), peak, 0.0)
        # Heights of 1e9 nats and more round by more than the tolerance.
        tolerance = (16 * torch.finfo(loc.dtype).eps * shift.abs()).clamp(min=TOLERANCE)
        tolerance = torch.where(peak.isfinite(), tolerance, math.inf)
        total = _integrate(lambda z: (log_integrand(z) - shift).exp(), torch.cat(edges).sort(0).values, tolerance)
        found = shift + total.log() - 0.5 * math.log(2 * math.pi)
    return torch.where(peak.isfinite(), found, peak)


def _find_peak(log_integrand: Callable[[Tensor], Tensor], centre: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A point near a peak, its height, and a distance over which the integrand falls by at most ``NEAR`` nats."""
    grid = torch.arange(-4, 5, dtype=centre.dtype, device=centre.device)[:, None]
    step, columns = torch.ones_like(centre), torch.arange(len(centre), device=centre.device)
    for _ in range(SEARCHES):
        heights = log_integrand(centre + step * grid)
        best = heights.argmax(0)
        # Among equals the centre: a row that is zero everywhere stays where it is.
        best = torch.where(heights[4] == heights[best, columns], 4, best)
        height = heights[best, columns]
        centre = centre + step * grid[best, 0]
        outside = (best == 0) | (best == 8) | ((height == -math.inf) & (step < FAR))
        beside = torch.minimum(heights[(best - 1).clamp(min=0), columns], heights[(best + 1).clamp(max=8), columns])
        sharp = ~outside & (height - beside > NEAR)
        if not bool((outside | sharp).any()):
            break
        step = torch.where(outside, 2 * step, torch.where(sharp, step / 4, step))
    return centre, height, step


def _panels(log_integrand: Callable[[Tensor], Tensor], place: Tensor, height: Tensor, step: Tensor) -> Tensor:
    """Edges of panels ``[15, n]`` around a peak, down by ``DROP`` on both sides.

    Panels are the longer the farther they are from the peak. Where the integrand is flat up to a wall (a likelihood
    that is steep under a wide Gaussian), so they are from the wall: no rule would see it otherwise.
    """
    sides = place.new_tensor([-1.0, 1.0])[:, None]

    def fall(distance: Tensor) -> Tensor:
        return height - log_integrand(place + sides * distance)

    inside, outside = torch.zeros_like(step).expand(2, -1), step.expand(2, -1)
    for _ in range(SEARCHES):
        near = fall(outside) < DROP
        if not bool(near.any()):
            break
        inside, outside = torch.where(near, outside, inside), torch.where(near, 2 * outside, outside)
    end = _crossing(fall, inside, outside, DROP)
    wall = end - _crossing(fall, torch.zeros_like(end), end, 1.0)
    distances = torch.stack([end / 8, end / 4, end / 2, end - 5 * wall, end - 25 * wall, end - wall, end]).clamp(min=0)
    return torch.cat([place[None], (place + sides * distances).flatten(0, 1)])


def _crossing(fall: Callable[[Tensor], Tensor], inside: Tensor, outside: Tensor, level: float) -> Tensor:
    """A distance ``[2, n]`` between those given at which the integrand has fallen by ``level`` nats, or twice that."""
    far = fall(outside) > 2 * level
    for _ in range(SEARCHES):
        if not bool(far.any()):
            break
        middle = (inside + outside) / 2
        fallen = fall(middle)
        beyond = fallen >= level
        inside, outside = torch.where(far & ~beyond, middle, inside), torch.where(far & beyond, middle, outside)
        far = far & ~(beyond & (fallen <= 2 * level))
    return outside


def _integrate(integrand: Callable[[Tensor], Tensor], edges: Tensor, tolerance: Tensor) -> Tensor:
    """Integrals ``[n]`` over the panels between the sorted edges; panels are halved until their errors are small."""
    low, high = _gathered(edges[1:] > edges[:-1], edges[:-1], edges[1:])
    done = edges.new_zeros(edges.shape[1])
    for _ in range(LEVELS):
        value, error = _gauss_kronrod(integrand, low, high)
        total = done + value.sum(0)
        rough = error > tolerance / 4 * total
        done = done + value.masked_fill(rough, 0.0).sum(0)
        if not bool(rough.any()):
            return done
        if int(rough.sum(0).max()) > MOST:
            break
        low, high = _gathered(rough, low, high)
        middle = (low + high) / 2
        low, high = torch.cat([low, middle]), torch.cat([middle, high])
    row = int(rough.any(0).nonzero()[0])
    raise NotIntegrated(f"the integral of row {row} has not converged: its density has no integral, or it is too rough")


def _gauss_kronrod(integrand: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The integrals over panels ``[p, n]`` and estimates of their errors (those of QUADPACK)."""
    half = lambda values: low.new_tensor([*values, *values[-2::-1]])  # noqa: E731
    nodes, kronrod, gauss = half(_NODES), half(_KRONROD), half(_GAUSS)
    nodes[8:] *= -1
    middle, width = (low + high) / 2, (high - low) / 2
    values = integrand((middle + width * nodes[:, None, None]).flatten(0, 1)).unflatten(0, (len(nodes), -1))
    value = torch.tensordot(kronrod, values, 1)
    difference = (value - torch.tensordot(gauss, values, 1)).abs()
    variation = torch.tensordot(kronrod, (values - value / 2).abs(), 1)
    # The Kronrod rule is far better than the Gauss rule within it.
    ratio = (200 * difference / variation.clamp(min=torch.finfo(low.dtype).tiny)).clamp(max=1)
    return value * width, variation * ratio.pow(1.5) * width


def _gathered(chosen: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen ones of the panels ``[p, n]``, in as few lines as hold them; empty panels fill up."""
    order = (~chosen).to(torch.uint8).argsort(dim=0, stable=True)[: int(chosen.sum(0).max())]
    low, high = low.gather(0, order), high.gather(0, order)
    return low, torch.where(chosen.gather(0, order), high, low)
