"""Which clients are computed together: of similar size, so that padding costs little."""

from collections.abc import Sequence
from itertools import accumulate

OVERHEAD = 1000
"""Rows that one more bucket costs: a batched step has a price of its own, whatever is in it."""
GRID = 1.05
"""Sizes within this ratio count as one, which bounds the search."""


def buckets(sizes: Sequence[int], overhead: int = OVERHEAD) -> list[list[int]]:
    """Positions of clients by bucket, at the least Σ (clients × largest size) + ``overhead`` a bucket.

    An optimal partition of the sorted sizes is one into runs: a shortest path over them.
    """
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    ends = _ends([sizes[index] for index in order])
    best: list[float] = [0.0]
    cuts: list[int] = []
    for k, end in enumerate(ends):
        largest = sizes[order[end - 1]]
        starts = [0, *ends[:k]]
        costs = [best[j] + overhead + (end - start) * largest for j, start in enumerate(starts)]
        cheapest = min(range(len(costs)), key=costs.__getitem__)
        best.append(costs[cheapest])
        cuts.append(cheapest)
    runs: list[list[int]] = []
    k = len(ends)
    while k:
        start = 0 if cuts[k - 1] == 0 else ends[cuts[k - 1] - 1]
        runs.append(order[start : ends[k - 1]])
        k = cuts[k - 1]
    return runs[::-1]


def _ends(ordered: Sequence[int]) -> list[int]:
    """Where runs of nearly equal sizes end, the only places to cut."""
    found: list[int] = []
    first = ordered[0]
    for index, size in enumerate(ordered):
        if size > GRID * first:
            found.append(index)
            first = size
    return [*found, len(ordered)]


def padded(sizes: Sequence[int], runs: Sequence[Sequence[int]]) -> float:
    """Rows computed a row that is there: 1 without padding."""
    return sum(len(run) * max(sizes[index] for index in run) for run in runs) / next(reversed(list(accumulate(sizes))))
