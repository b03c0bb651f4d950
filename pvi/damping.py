"""The damping ρ of each round."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Damping(Protocol):
    """A rule for ρ in (0, 1]; the search for a stable one is :class:`Auto`'s, driven by the run."""

    def at(self, round_index: int) -> float:
        """ρ of a round (from 0) before any search."""


def check_damping(value: object, name: str = "damping") -> float:
    """A number in (0, 1], else ``ValueError``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(
            f"{name} must lie in (0, 1], got {value!r}; 1 is undamped, 'auto' searches, pvi.Decay(...) shrinks it"
        )
    return float(value)


@dataclass(frozen=True)
class Constant:
    """The same ρ in every round."""

    value: float

    def __post_init__(self) -> None:
        check_damping(self.value)

    def at(self, round_index: int) -> float:
        """See :class:`Damping`."""
        return self.value


@dataclass(frozen=True)
class Decay:
    """ρ_r = initial / (1 + rate · r)^power: averages the noise of stochastic solvers away over rounds.

    >>> [round(Decay(0.5, rate=1.0).at(r), 3) for r in range(3)]
    [0.5, 0.25, 0.167]
    """

    initial: float
    rate: float = 0.1
    power: float = 1.0

    def __post_init__(self) -> None:
        check_damping(self.initial, "Decay: initial")
        if self.rate <= 0 or self.power <= 0:
            raise ValueError(f"Decay: rate and power must be positive, got {self.rate} and {self.power}")

    def at(self, round_index: int) -> float:
        """See :class:`Damping`."""
        return float(self.initial / (1 + self.rate * round_index) ** self.power)


@dataclass(frozen=True)
class Auto:
    """Search: a round that lowers the free energy is taken back and repeated with a smaller ρ.

    ``initial`` is tried first; ρ shrinks by ``shrink`` where the free energy fell and grows by ``grow`` after a round
    that raised it, up to 1. Below ``smallest`` the round is kept as it is.
    """

    initial: float = 0.5
    shrink: float = 0.5
    grow: float = 1.1
    smallest: float = 1e-3

    def __post_init__(self) -> None:
        check_damping(self.initial, "Auto: initial")
        check_damping(self.smallest, "Auto: smallest")
        if not 0 < self.shrink < 1 <= self.grow:
            raise ValueError(f"Auto: shrink must lie in (0, 1) and grow be at least 1, got {self.shrink}, {self.grow}")

    def at(self, round_index: int) -> float:
        """See :class:`Damping`."""
        return self.initial


def resolve_damping(damping: Damping | float | str) -> Damping:
    """A number, ``"auto"``, or the object itself; raises ``ValueError`` for anything else."""
    if isinstance(damping, str):
        if damping != "auto":
            raise ValueError(f"unknown damping {damping!r}: a number in (0, 1], 'auto', or pvi.Decay(...)")
        return Auto()
    return damping if isinstance(damping, Damping) else Constant(check_damping(damping))
