"""Laws of where natural parameters are proper."""

import math

import torch
from torch import Tensor

from pvi.families import largest_step
from pvi.testing.case import Case


def propriety_at_the_edge(case: Case) -> None:
    """Just inside the boundary η is proper with finite A, just outside improper with infinite A; there A is steep."""
    family, naturals = case.family, case.naturals
    edge = math.sqrt(torch.finfo(naturals.dtype).eps)
    deltas = torch.cat([-2 * naturals, case.unit * case.normal(16, family.num_natural, stream=5)])
    naturals = torch.cat([naturals, naturals.repeat(4, 1)])
    assert bool(family.is_proper(naturals).all()), "natural_from_free must give proper parameters"
    boundary = family.boundary(naturals, deltas)
    finite = torch.isfinite(boundary)
    assert bool((boundary > 0).all()), "the boundary lies ahead of a proper η"
    inside = torch.where(finite, boundary * (1 - edge), torch.full_like(boundary, 1e3))
    outside = torch.where(finite, boundary * (1 + edge), boundary)
    for fraction in (0 * inside, 0.5 * inside, inside):
        reached = naturals + fraction[:, None] * deltas
        assert bool(family.is_proper(reached).all()), "improper before the boundary"
        assert bool(torch.isfinite(family.log_partition(reached)).all()), "A must be finite where η is proper"
    beyond = (naturals + outside[:, None] * deltas)[finite]
    assert not bool(family.is_proper(beyond).any()), "proper beyond the boundary"
    assert bool((family.log_partition(beyond) == math.inf).all()), "A must be infinite where η is improper"
    _check_steep(case, naturals.double(), deltas.double())
    fraction = largest_step(family, naturals, deltas)
    whole = boundary > 1
    assert bool(family.is_proper(naturals + fraction[:, None] * deltas).all()), "largest_step left the family"
    assert bool((fraction[whole] == 1).all()), "a proper end needs no shortening"
    assert bool((fraction[~whole] < boundary[~whole]).all()), "largest_step must stop short of the boundary"
    for bad in (math.nan, math.inf, -math.inf):
        broken = case.naturals[1].clone()
        broken[0] = bad
        assert not bool(family.is_proper(broken)), f"a parameter that is {bad} cannot be proper"


def _check_steep(case: Case, naturals: Tensor, deltas: Tensor) -> None:
    """A boundary is no made-up end: the slope of A grows without bound towards it, at 1/√distance or faster."""
    boundary = case.family.boundary(naturals, deltas)
    finite = torch.isfinite(boundary)
    naturals, deltas, boundary = naturals[finite], deltas[finite], boundary[finite]
    edge = math.sqrt(torch.finfo(naturals.dtype).eps)
    near, far = (
        (case.family.mean_parameters(naturals + (1 - distance) * boundary[:, None] * deltas) * deltas).sum(-1)
        for distance in (edge, 4 * edge)
    )
    assert bool(((far > 0) & (near > 1.5 * far)).all()), "A must become steep towards the boundary"


LAWS = (propriety_at_the_edge,)
