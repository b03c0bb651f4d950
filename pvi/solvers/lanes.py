"""The data of a batched solve, step by step: all rows of every client, or a mini-batch of each."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.programs.program import num_rows
from pvi.programs.weighted import tensors_of
from pvi.solvers.draws import RowLanes
from pvi.stack import Flat, Stack


def rows_a_step(batch_size: int | None, problem: LocalProblem) -> int | None:
    """The mini-batch's rows, ``None`` where a step uses all: the model's own plate decides where it subsamples."""
    plate = problem.program.sites.subsampling
    size = batch_size if plate is None else plate[2]
    return None if size is None or size >= num_rows(problem.program, problem.batch) else size


class Lanes(NamedTuple):
    """Clients that are solved together: their positions among the problems that were asked for, and their data.

    ``batch_size`` is ``None`` where a step uses all rows. ``totals`` are the rows that mini-batches are drawn from.
    """

    members: list[int]
    data: Stack | Flat
    batch_size: int | None
    totals: list[int]

    @property
    def problem(self) -> LocalProblem:
        """The problem whose shapes all have."""
        return self.data.problem

    @property
    def rows_a_step(self) -> int:
        """Rows of each client in a step, padding included."""
        return max(self.data.rows) if self.batch_size is None else self.batch_size


class Inputs(NamedTuple):
    """One step's data. ``scale [M]`` is n/b; ``rows [M, b]`` are for programs that draw their own.

    ``tensors`` are those of the clients, clients first; they are overwritten by the next step's.
    """

    tensors: tuple[Tensor, ...]
    weights: Tensor | None
    scale: Tensor
    rows: Tensor | None


def pack(data: Inputs) -> tuple[Tensor, ...]:
    """The tensors that there are."""
    optional = [part for part in (data.weights, data.rows) if part is not None]
    return data.scale, *optional, *data.tensors


def unpack(like: Inputs, values: Sequence[Tensor]) -> Inputs:
    """The inverse of :func:`pack`, for data of the kind ``like``."""
    scale, *rest = values
    weights, rows = (None if part is None else rest.pop(0) for part in (like.weights, like.rows))
    return Inputs(tuple(rest), weights, scale, rows)


def lanes_of(
    problems: Sequence[LocalProblem],
    starts: Sequence[Tensor],
    sizes: Sequence[int | None],
    engine: Engine,
    *,
    pad: bool = True,
) -> list[Lanes]:
    """The problems by what can be solved together; ``sizes`` are their mini-batches, ``None`` for all rows.

    Without ``pad`` all clients that are solved together take equally many rows a step.
    """
    found: list[Lanes] = []
    for size in sorted(set(sizes), key=lambda size: size or 0):
        positions = [index for index, other in enumerate(sizes) if other == size]
        chosen, naturals = [problems[index] for index in positions], [starts[index] for index in positions]
        data: list[tuple[list[int], Stack | Flat]] = []
        if size is None or problems[positions[0]].program.sites.subsampling is not None:
            data.extend(engine.groups(chosen, naturals, pad=pad))
        else:
            data.extend(engine.flats(chosen, naturals, size))
        found.extend(
            Lanes([positions[index] for index in members], kept, size, list(kept.rows)) for members, kept in data
        )
    return found


class Rows:
    """Every step's data for several clients, whose mini-batches come from their own seeds."""

    def __init__(self, lanes: Lanes, seeds: Sequence[int], like: Tensor) -> None:
        self._lanes, self._like = lanes, like
        size = lanes.batch_size
        self._rows = None if size is None else RowLanes(seeds, lanes.totals, size, like.device)
        self._here = torch.arange(len(seeds), device=like.device)
        self._alone = tensors_of(lanes.problem.batch)
        self._fixed = self._part()

    def next(self) -> Inputs:
        """The next step's data."""
        if self._rows is None:
            return self._fixed
        data, rows = self._lanes.data, self._rows.next()
        if isinstance(data, Stack):
            return self._fixed._replace(rows=rows)
        places = (rows + data.offsets[self._here, None]).flatten()
        for value, one, slot in zip(data.tensors, self._alone, self._fixed.tensors, strict=True):
            if one.ndim:
                # Into the same memory every time: new pages cost more than the copy.
                torch.index_select(value, 0, places, out=slot.flatten(0, 1))
        return self._fixed

    def keep(self, lanes: Tensor) -> None:
        """Go on with these lanes only."""
        if self._rows is not None:
            self._rows.keep(lanes)
        self._here = self._here[lanes]
        self._fixed = self._part()

    def _part(self) -> Inputs:
        lanes, data = self._lanes, self._lanes.data
        scale = self._like.new_ones(len(self._here))
        if isinstance(data, Flat):
            assert lanes.batch_size is not None
            totals = self._like.new_tensor([float(total) for total in lanes.totals])
            tensors = tuple(
                value.new_empty(len(self._here), lanes.batch_size, *value.shape[1:]) if one.ndim else value[self._here]
                for value, one in zip(data.tensors, self._alone, strict=True)
            )
            return Inputs(tensors, None, totals[self._here] / lanes.batch_size, None)
        if len(self._here) == len(lanes.totals):
            return Inputs(data.tensors, data.weights, scale, None)
        weights = None if data.weights is None else data.weights[self._here]
        return Inputs(tuple(value[self._here] for value in data.tensors), weights, scale, None)
