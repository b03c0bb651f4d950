"""The random numbers of a stochastic solver: one stream for its noise and one for its rows, fixed by a seed.

Both are drawn client by client, whoever runs the solver, so that every executor works with the same numbers.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

BLOCK = 4096
"""Numbers that are drawn at once where a step needs fewer."""
ROWS = 0x9E3779B97F4A7C15
"""Keeps the stream of rows apart from that of the noise."""


def noise_generator(seed: int, device: torch.device) -> torch.Generator:
    """The generator of a solve's standard normal numbers."""
    return torch.Generator(device=device).manual_seed(seed)


def row_generator(seed: int, device: torch.device) -> torch.Generator:
    """The generator of a solve's mini-batches."""
    return torch.Generator(device=device).manual_seed((seed ^ ROWS) % 2**63)


def steps_a_block(num_particles: int, size: int) -> int:
    """For how many steps the noise is drawn at once."""
    return max(1, BLOCK // max(1, num_particles * size))


def noise_block(num_particles: int, size: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers of several steps, ``[steps, num_particles, size]``."""
    shape = (steps_a_block(num_particles, size), num_particles, size)
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def noise(num_particles: int, size: int, generator: torch.Generator, like: Tensor) -> Iterator[Tensor]:
    """Standard normal numbers of one step after the other, each ``[num_particles, size]``."""
    while True:
        yield from noise_block(num_particles, size, generator, like)


def minibatches(total: int, batch_size: int | None, generator: torch.Generator) -> Iterator[Tensor | None]:
    """Rows of one step after the other: without replacement within an epoch, an incomplete last batch is skipped."""
    if batch_size is None or batch_size >= total:
        while True:
            yield None
    while True:
        order = torch.randperm(total, generator=generator, device=generator.device)
        for start in range(0, total - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


class NoiseLanes:
    """The noise of several clients, step by step: each client's is what :func:`noise` gives it alone."""

    def __init__(self, seeds: Sequence[int], num_particles: int, size: int, like: Tensor) -> None:
        self._generators = [noise_generator(seed, like.device) for seed in seeds]
        self._number, self._size, self._like = num_particles, size, like
        self._block, self._used = like.new_empty(0, len(seeds), num_particles, size), 0

    def next(self) -> Tensor:
        """``[M, num_particles, size]``."""
        if self._used == len(self._block):
            blocks = [noise_block(self._number, self._size, one, self._like) for one in self._generators]
            self._block, self._used = torch.stack(blocks, 1), 0
        self._used += 1
        return self._block[self._used - 1]

    def keep(self, lanes: Tensor) -> None:
        """Go on with these lanes only."""
        self._generators = [self._generators[lane] for lane in lanes.tolist()]
        self._block = self._block[:, lanes]
