"""The random numbers of many clients are those of each client alone."""

import torch

from pvi.solvers.draws import NoiseLanes, RowLanes, minibatches, noise, noise_generator, row_generator

CPU = torch.device("cpu")
LIKE = torch.zeros((), dtype=torch.float64)


def test_mini_batches_of_lanes_are_those_of_each_client_when_some_leave():
    seeds, totals, size = [3, 5, 8, 13], [20, 7, 31, 9], 4
    alone = [minibatches(total, size, row_generator(seed, CPU)) for total, seed in zip(totals, seeds, strict=True)]
    lanes, here = RowLanes(seeds, totals, size, CPU), [0, 1, 2, 3]
    for step in range(40):
        if step == 17:
            lanes.keep(torch.tensor([2, 0]))
            here = [2, 0]
        found = lanes.next()
        assert found.shape == (len(here), size)
        expected = [next(stream) for stream in alone]
        assert all(torch.equal(rows, expected[index]) for rows, index in zip(found, here, strict=True)), step


def test_noise_of_lanes_is_that_of_each_client_when_some_leave():
    seeds, number, size = [1, 2, 3], 2, 700
    alone = [noise(number, size, noise_generator(seed, CPU), LIKE) for seed in seeds]
    lanes, here = NoiseLanes(seeds, number, size, LIKE), [0, 1, 2]
    for step in range(9):
        if step == 4:
            lanes.keep(torch.tensor([2, 1]))
            here = [2, 1]
        found, expected = lanes.next(), [next(stream) for stream in alone]
        assert all(torch.equal(one, expected[index]) for one, index in zip(found, here, strict=True)), step
