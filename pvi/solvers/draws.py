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
        yield from epoch(total, batch_size, generator)


def epoch(total: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """The rows of an epoch's steps, ``[steps, batch_size]``."""
    order = torch.randperm(total, generator=generator, device=generator.device)
    steps = total // batch_size
    return order[: steps * batch_size].view(steps, batch_size)


class NoiseLanes:
    """The noise of several clients, step by step: each client's is what :func:`noise` gives it alone."""

    def __init__(self, seeds: Sequence[int], num_particles: int, size: int, like: Tensor) -> None:
        self._generators = [noise_generator(seed, like.device) for seed in seeds]
        self._number, self._size, self._like = num_particles, size, like
        self._block, self._used = like.new_empty(0, len(seeds), num_particles, size), 0

    def next(self) -> Tensor:
        """``[M, num_particles, size]``; the next step's overwrite them."""
        if self._used == len(self._block):
            self._draw()
        self._used += 1
        return self._block[self._used - 1]

    def keep(self, lanes: Tensor) -> None:
        """Go on with these lanes only."""
        self._generators = [self._generators[lane] for lane in lanes.tolist()]
        self._block = self._block[:, lanes]

    def _draw(self) -> None:
        self._used = 0
        if steps_a_block(self._number, self._size) > 1:
            blocks = [noise_block(self._number, self._size, one, self._like) for one in self._generators]
            self._block = torch.stack(blocks, 1)
            return
        if not len(self._block):
            self._block = self._like.new_empty(1, len(self._generators), self._number, self._size)
        for lane, generator in enumerate(self._generators):
            # Into the same memory every time: new pages cost more than the numbers.
            torch.randn((self._number, self._size), generator=generator, out=self._block[0, lane])


class RowLanes:
    """The mini-batches of several clients, step by step: each client's are what :func:`minibatches` gives it alone."""

    def __init__(self, seeds: Sequence[int], totals: Sequence[int], batch_size: int, device: torch.device) -> None:
        self._generators = [row_generator(seed, device) for seed in seeds]
        self._totals, self._size = list(totals), batch_size
        self._epochs = [torch.empty(0, batch_size, dtype=torch.long, device=device) for _ in seeds]
        self._used = [0] * len(self._totals)
        self._block, self._next = self._epochs[0][:, None], 0

    def next(self) -> Tensor:
        """``[M, batch_size]``."""
        if self._next == len(self._block):
            self._draw()
        self._next += 1
        return self._block[self._next - 1]

    def keep(self, lanes: Tensor) -> None:
        """Go on with these lanes only."""
        kept = lanes.tolist()
        self._generators = [self._generators[lane] for lane in kept]
        self._totals = [self._totals[lane] for lane in kept]
        self._epochs = [self._epochs[lane] for lane in kept]
        self._used = [self._used[lane] for lane in kept]
        self._block = self._block[:, lanes]

    def _draw(self) -> None:
        """The steps until the first client's epoch is over, at once."""
        for lane, (rows, used) in enumerate(zip(self._epochs, self._used, strict=True)):
            if used == len(rows):
                self._epochs[lane] = epoch(self._totals[lane], self._size, self._generators[lane])
                self._used[lane] = 0
        steps = min(len(rows) - used for rows, used in zip(self._epochs, self._used, strict=True))
        parts = [rows[used : used + steps] for rows, used in zip(self._epochs, self._used, strict=True)]
        self._block, self._next = torch.stack(parts, 1), 0
        self._used = [used + steps for used in self._used]
