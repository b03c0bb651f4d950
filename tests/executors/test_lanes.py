"""The random numbers of several clients at once are those that each gets alone."""

import pytest
import torch
from together import F64

from pvi.solvers.draws import NoiseLanes, minibatches, noise, noise_generator, row_generator, steps_a_block

LIKE = torch.zeros((), dtype=F64)
CPU = torch.device("cpu")


@pytest.mark.parametrize(("particles", "size"), [(2, 3), (1, 5000), (50, 100)])
def test_noise_of_lanes_is_that_of_each_alone(particles, size):
    """Over several blocks, and where lanes leave in the middle of one."""
    seeds = [3, 5, 8]
    lanes = NoiseLanes(seeds, particles, size, LIKE)
    alone = [noise(particles, size, noise_generator(seed, CPU), LIKE) for seed in seeds]
    block = steps_a_block(particles, size)
    for _ in range(block + 2):
        for mine, theirs in zip(lanes.next(), alone, strict=True):
            assert torch.equal(mine, next(theirs))
    lanes.keep(torch.tensor([2, 0]))
    for _ in range(block + 2):
        for mine, lane in zip(lanes.next(), (2, 0), strict=True):
            assert torch.equal(mine, next(alone[lane]))


def test_blocks_do_not_change_the_numbers():
    """A generator gives the same numbers in one call or in many, as long as calls ask for many."""
    (first,) = [next(noise(2, 3, noise_generator(1, CPU), LIKE))]
    block = torch.randn(steps_a_block(2, 3), 2, 3, generator=noise_generator(1, CPU), dtype=F64)
    assert torch.equal(first, block[0])


def test_streams_of_noise_and_rows_are_apart():
    assert noise_generator(7, CPU).initial_seed() != row_generator(7, CPU).initial_seed()
    assert row_generator(2**62, CPU).initial_seed() >= 0


def test_epochs_visit_every_row_once():
    batches = minibatches(10, 3, row_generator(0, CPU))
    for _ in range(4):
        rows = torch.cat([next(batches) for _ in range(3)])
        assert len(set(rows.tolist())) == 9


@pytest.mark.parametrize("size", [None, 10, 20])
def test_all_rows_need_no_batches(size):
    assert next(minibatches(10, size, row_generator(0, CPU))) is None
