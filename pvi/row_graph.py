"""A program's likelihood row by row as one graph, for any rows of any client that runs it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.capture import Captured
from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.programs.row_likelihood import row_log_prob
from pvi.programs.weighted import refill, tensors_of
from pvi.stack import keep, kind

CAPACITY = 2**14
"""Pairs of rows and nodes in one run of a graph on the CPU; a GPU takes many more."""


class RowGraph(NamedTuple):
    """(f, *data) ``[t, ...]`` -> log p(y | f) and its slope, and an example of its arguments.

    ``needed`` tells which of the data the graph makes use of.
    """

    run: Captured
    example: tuple[Tensor, ...]
    needed: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """Pairs that a run takes."""
        return self.example[0].shape[0]

    def at(self, f: Tensor, data: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """At f ``[t]`` and the data ``[t, ...]`` that are needed, for any t up to the capacity."""
        length = f.shape[0]
        rest = self.capacity - length
        arguments = [f, *self.example[1:]]
        for place, value in zip(self.needed, data, strict=True):
            arguments[1 + place] = value
        if rest:
            for place in (0, *(1 + place for place in self.needed)):
                value = arguments[place]
                arguments[place] = torch.cat([value, value[-1:].expand(rest, *value.shape[1:])])
        values, slopes = self.run(*arguments)
        return values[:length], slopes[:length]


def row_graph(problem: LocalProblem, engine: Engine) -> RowGraph:
    """The graph for all clients of a kind; raises :class:`~pvi.stack.NotVectorisable` where there is none."""
    program, batch = problem.program, problem.batch
    size = CAPACITY if batch.device.type == "cpu" else 2**20
    rows = torch.arange(size, device=batch.device) % batch.num_rows
    zero = torch.zeros(problem.family.size, dtype=batch.dtype, device=batch.device)

    def function(f: Tensor, *data: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            f = f.detach().requires_grad_()
            values = row_log_prob(program, refill(batch, data), zero, f)
            (slopes,) = torch.autograd.grad(values.sum(), f)
        return values.detach(), slopes

    example = (zero.new_zeros(size), *tensors_of(batch.take(rows)))
    run = engine.captured(("rows", kind(problem)), keep(problem), lambda: function, example)
    used = [bool(node.users) for node in run.graph.graph.nodes if node.op == "placeholder"]
    needed = tuple(place for place, flag in enumerate(used[1:]) if flag)
    # What the graph has no use for is not held on to.
    return RowGraph(
        run,
        tuple(v if k == 0 or k - 1 in needed else v.new_zeros(()).expand_as(v) for k, v in enumerate(example)),
        needed,
    )
