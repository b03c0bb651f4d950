"""Buckets by size: the cheapest ones, and waste that stays small."""

from itertools import pairwise

import pytest
import torch

from pvi.buckets import GRID, OVERHEAD, buckets, padded


def cost(runs, sizes, overhead):
    return sum(overhead + len(run) * max(sizes[index] for index in run) for run in runs)


def cheapest(sizes, overhead):
    """Over all partitions of all clients, not only into runs."""
    if not sizes:
        return 0.0
    first, *rest = range(len(sizes))
    best = float("inf")
    for mask in range(2 ** len(rest)):
        beside = [first, *(index for bit, index in enumerate(rest) if mask >> bit & 1)]
        others = [sizes[index] for index in range(len(sizes)) if index not in beside]
        best = min(best, cost([beside], sizes, overhead) + cheapest(others, overhead))
    return best


@pytest.mark.parametrize("overhead", [0, 3, 20, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_no_partition_is_cheaper(seed, overhead):
    generator = torch.Generator().manual_seed(seed)
    # Multiples of 10 up to 200: no two different sizes lie within the grid.
    sizes = (10 * torch.randint(1, 21, (7,), generator=generator)).tolist()
    apart = [10 * round(size / 10) for size in sizes]
    assert cost(buckets(apart, overhead), apart, overhead) <= GRID * cheapest(apart, overhead)
    spread = [
        size
        for size in set(sizes)
        if all(size == other or max(size, other) > GRID * min(size, other) for other in sizes)
    ]
    assert cost(buckets(spread, overhead), spread, overhead) == cheapest(spread, overhead)


def test_every_client_is_in_one_bucket_of_similar_ones():
    sizes = torch.randint(1, 5000, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    runs = buckets(sizes)
    assert sorted(index for run in runs for index in run) == list(range(200))
    for run, after in pairwise(runs):
        assert max(sizes[index] for index in run) <= min(sizes[index] for index in after)


def test_one_large_client_stays_alone():
    sizes = [100] * 5 + [10_000] + [100] * 5
    runs = buckets(sizes)
    assert sorted(map(len, runs)) == [1, 10]
    assert [5] in runs
    assert padded(sizes, runs) == 1.0


@pytest.mark.parametrize("sizes", [[7], [7] * 50, [1, 1000], list(range(1, 30))])
def test_small_federations_are_one_bucket(sizes):
    """Less padding than another bucket's overhead."""
    waste = len(sizes) * max(sizes) - sum(sizes)
    assert len(buckets(sizes)) == 1 or waste > OVERHEAD


@pytest.mark.parametrize("seed", range(3))
def test_waste_is_bounded(seed):
    """Never dearer than one bucket of all, nor than one a size; log-normal sizes of 1,000 clients waste a quarter."""
    sizes = torch.randn(1000, generator=torch.Generator().manual_seed(seed)).mul(1.2).add(5).exp().int().add(1).tolist()
    runs = buckets(sizes)
    found = cost(runs, sizes, OVERHEAD)
    assert found <= cost([list(range(1000))], sizes, OVERHEAD)
    assert found <= GRID * cost([[k for k in range(1000) if sizes[k] == size] for size in set(sizes)], sizes, OVERHEAD)
    assert 1.0 <= padded(sizes, runs) < 1.25
    assert len(runs) < 40
