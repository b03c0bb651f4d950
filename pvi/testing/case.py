"""What a law is checked on: a family, some of its proper members, and what "equal" means there."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, Product, is_discrete, is_gaussian

ERRORS = 5.0
"""Standard errors that an estimate may be off."""
DRAWS = 10_000
SPREADS = (0.0, 0.5, 0.5, 1.0)
"""The members' unconstrained parameters: zero, twice moderate, wide."""


class Case(NamedTuple):
    """``naturals`` ``[4, num_natural]`` are proper; ``unit`` ``[num_natural]`` is the size of each parameter there."""

    family: Family
    naturals: Tensor
    unit: Tensor
    scale: float
    seed: int

    @property
    def tolerance(self) -> float:
        """What rounding may reach, relative to the size of a quantity."""
        return 1e4 * torch.finfo(self.naturals.dtype).eps

    def generator(self, stream: int = 0) -> torch.Generator:
        """A stream of its own for every use."""
        return torch.Generator().manual_seed(1_000 * self.seed + stream)

    def draws(self, natural: Tensor, stream: int = 0) -> Tensor:
        """``[DRAWS, size]`` from one member."""
        return self.family.sample(natural, (DRAWS,), self.generator(stream))

    def normal(self, *shape: int, stream: int = 0) -> Tensor:
        """Standard normal numbers of the case's dtype."""
        return torch.randn(shape, generator=self.generator(stream), dtype=torch.float64).to(self.naturals)


def continuous_entries(family: Family) -> Tensor:
    """Which natural parameters belong to families whose draws have derivatives, ``[num_natural]`` of booleans."""
    if isinstance(family, Product):
        return torch.cat([continuous_entries(member) for member in family.members])
    return torch.full((family.num_natural,), not is_discrete(family))


def build_case(family: Family, dtype: torch.dtype, scale: float, seed: int) -> Case:
    """Members of the family for x of size ``scale`` where it is Gaussian, else of size one."""
    generator = torch.Generator().manual_seed(seed)
    free = torch.randn(len(SPREADS), family.num_free, generator=generator, dtype=torch.float64)
    # A draw near the end of a support rounds in single precision: members with much mass there are left out.
    wide = is_gaussian(family) or is_discrete(family)
    spreads = (1.0 if wide else 0.5) * torch.tensor(SPREADS, dtype=torch.float64)
    naturals = family.natural_from_free(spreads[:, None] * free)
    if is_gaussian(family):
        # T is homogeneous, entry by entry, so the law of c·x has the parameters η / (T(c) / T(1)).
        one = torch.ones(family.size, dtype=torch.float64)
        naturals = naturals / (family.statistics(scale * one) / family.statistics(one))
    naturals = naturals.to(dtype)
    return Case(family, naturals, size_of(naturals), scale, seed)


def size_of(values: Tensor) -> Tensor:
    """The root mean square over the first axis, never zero."""
    return values.detach().square().mean(0).sqrt().clamp(min=torch.finfo(values.dtype).tiny)


def hessian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Second derivatives by two reverse passes (forward mode imports deprecated parts of torch)."""
    found: Tensor = torch.func.jacrev(torch.func.jacrev(function))(x)
    return found


def close(case: Case, what: str, actual: Tensor, expected: Tensor, unit: Tensor | float = 1.0) -> None:
    """Equality up to rounding, relative to ``unit``."""
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    if actual.dtype != expected.dtype:
        raise AssertionError(f"{what}: {actual.dtype}, expected {expected.dtype}")
    error = ((actual - expected).abs() / unit).max() if actual.numel() else actual.new_zeros(())
    if not bool(error <= case.tolerance):
        raise AssertionError(f"{what}: off by {error.item():.3g} of its size (allowed {case.tolerance:.1g})")


def estimates(case: Case, what: str, samples: Tensor, expected: Tensor, unit: Tensor | float = 1.0) -> None:
    """The mean over the first axis lies within five standard errors of ``expected``."""
    error = samples.std(0) / len(samples) ** 0.5
    difference = (samples.mean(0) - expected).abs()
    allowed = ERRORS * error + case.tolerance * torch.as_tensor(unit)
    if not bool((difference <= allowed).all()):
        worst = (difference / allowed).max().item() * ERRORS
        raise AssertionError(f"{what}: {worst:.1f} standard errors away (allowed {ERRORS})")
