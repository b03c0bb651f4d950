"""First-order optimisers as pure functions of tensors: what they remember is part of a state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

INF = float("inf")
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Optimiser(Protocol):
    """From a gradient and what it remembers to a step, safe under ``torch.func.vmap``."""

    def init(self, like: Tensor) -> tuple[Tensor, ...]:
        """What is remembered before the first step, for parameters like these."""

    def step(self, memory: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What is added to the parameters to go down, and what is remembered."""


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba (2015): remembers the gradient's first two moments, and β_1^t, β_2^t after t steps.

    The powers are kept as products: a compiler would raise them anew for every parameter. ``epsilon`` is a gradient
    that counts as small: with next to none, gradients that are rounding errors make steps as long as any.
    """

    learning_rate: float
    epsilon: float = EPSILON

    def init(self, like: Tensor) -> tuple[Tensor, ...]:
        """See :class:`Optimiser`."""
        return torch.zeros_like(like), torch.zeros_like(like), like.new_ones(()), like.new_ones(())

    def step(self, memory: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See :class:`Optimiser`."""
        first, second, decay_1, decay_2 = memory
        decay_1, decay_2 = BETA_1 * decay_1, BETA_2 * decay_2
        first = BETA_1 * first + (1 - BETA_1) * gradient
        second = BETA_2 * second + (1 - BETA_2) * gradient * gradient
        direction = (first / (1 - decay_1)) / ((second / (1 - decay_2)).sqrt() + self.epsilon)
        return -self.learning_rate * direction, (first, second, decay_1, decay_2)


@dataclass(frozen=True)
class SGD:
    """Plain gradient steps: remembers nothing."""

    learning_rate: float

    def init(self, like: Tensor) -> tuple[Tensor, ...]:
        """See :class:`Optimiser`."""
        return ()

    def step(self, memory: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See :class:`Optimiser`."""
        return -self.learning_rate * gradient, memory


OPTIMISERS: dict[str, Callable[[float, float], Optimiser]] = {"adam": Adam, "sgd": lambda rate, _: SGD(rate)}
"""What an optimiser can be called by; each takes its learning rate and, Adam, its ε."""


def resolve_optimiser(name: str, learning_rate: float, epsilon: float = EPSILON) -> Optimiser:
    """An optimiser by name; raises ``ValueError`` for an unknown one, a negative learning rate, or an ε of 0."""
    if name not in OPTIMISERS:
        raise ValueError(f"unknown optimiser {name!r}; there are {', '.join(OPTIMISERS)}")
    if isinstance(learning_rate, bool) or not isinstance(learning_rate, int | float) or not 0 <= learning_rate < INF:
        raise ValueError(f"a learning rate is a number from 0, got {learning_rate!r}")
    if not 0 < epsilon < INF:
        raise ValueError(f"Adam's epsilon is a positive number, got {epsilon!r}")
    return OPTIMISERS[name](learning_rate, epsilon)
