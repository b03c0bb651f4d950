"""Algorithms: a table and a few lines of wiring each."""

from collections.abc import Callable

from pvi.algorithms.protocol import Algorithm
from pvi.algorithms.pvi import PVI

ALGORITHMS: dict[str, Callable[[], Algorithm]] = {"pvi": PVI}


def resolve_algorithm(algorithm: Algorithm | str) -> Algorithm:
    """An algorithm by name, or the object itself; raises ``ValueError`` for an unknown name."""
    if not isinstance(algorithm, str):
        return algorithm
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm]()


__all__ = ["ALGORITHMS", "PVI", "Algorithm", "resolve_algorithm"]
