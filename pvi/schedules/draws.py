"""Random orders and durations, each a function of a seed and of what it is drawn for."""

from collections.abc import Sequence

import numpy as np


def check_seed(seed: int) -> None:
    """Raises ``ValueError`` for anything but a whole number from 0."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be a whole number, at least 0, got {seed!r}")


def permuted(clients: Sequence[str], seed: int, round_index: int) -> tuple[str, ...]:
    """The clients in a random order, new in every round."""
    generator = np.random.default_rng((seed, round_index))
    return tuple(clients[index] for index in generator.permutation(len(clients)))


def lognormal(sd: float, seed: int, client: int, visit: int) -> float:
    """A factor of mean 1 whose logarithm has standard deviation ``sd``."""
    generator = np.random.default_rng((seed, client, visit))
    return float(np.exp(sd * generator.standard_normal() - sd**2 / 2))
