"""Quadrature over the rows of several clients: every row at its own nodes, all rows in one graph of the program.

A program whose likelihood goes row by row is captured once for any rows of any client that runs it: the graph leaves
out the Python of the program and the predictor that nodes take the place of. Each client's rows are tried out first.
Until a graph is worth its price, and where the program does not allow one, clients are evaluated one by one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.packed_quadrature import packed_expectations
from pvi.programs.linear_predictor import LinearPredictor
from pvi.programs.row_likelihood import close
from pvi.programs.weighted import tensors_of
from pvi.quadrature import RowExpectations, clamped, classes, expectations
from pvi.row_graph import RowGraph, row_graph
from pvi.stack import NotVectorisable, keep, kind

WORTH = 3_000_000
"""Numbers that are evaluated without a graph before one is captured: about what that costs."""
PROGRAM = 40_000
"""Numbers that the Python of a program costs a run."""


class Spent(NamedTuple):
    """Numbers evaluated without a graph: a list of one."""

    numbers: list[int]


class RowLikelihood:
    """The likelihoods of m clients' rows, the shorter ones padded to n; without an ``engine`` one by one."""

    def __init__(self, problems: Sequence[LocalProblem], engine: Engine | None) -> None:
        self.problems, self.engine = problems, engine
        self.lengths = [len(_predictor(problem).offset) for problem in problems]
        widths = [_predictor(problem).width for problem in problems]
        self.widths = _predictor(problems[0]).offset.new_tensor(widths)[:, None]
        longest = max(self.lengths)
        present = [torch.arange(index * longest, index * longest + rows) for index, rows in enumerate(self.lengths)]
        self.places = torch.cat(present).to(self.widths.device)
        self.graph: RowGraph | None = None
        self.data: tuple[Tensor, ...] = ()
        self._refused = engine is None
        self._last: tuple[Tensor, Tensor, RowExpectations] | None = None

    def last(self, loc: Tensor, scale: Tensor) -> RowExpectations | None:
        """The last expectations, where they are wanted again."""
        known = self._last is not None and torch.equal(loc, self._last[0]) and torch.equal(scale, self._last[1])
        return self._last[2] if known and self._last is not None else None

    def remember(self, loc: Tensor, scale: Tensor, found: RowExpectations) -> None:
        """Keep expectations, as long as the engine does."""
        if self.engine is not None:
            self._last = loc, scale, found

    def one_by_one(self, loc: Tensor, scale: Tensor) -> RowExpectations:
        """Each client's program alone; ``[m, n]``, 0 where there is no row."""
        found = []
        for problem, rows, mean, sd in zip(self.problems, self.lengths, loc, scale, strict=True):
            predictor, short = _predictor(problem), loc.shape[1] - rows
            own = expectations(predictor.log_prob, mean[:rows], sd[:rows], predictor.width)
            found.append([torch.nn.functional.pad(value, (0, short)) if short else value for value in own])
        return RowExpectations(*[torch.stack(values) for values in zip(*found, strict=True)])

    def ready(self) -> bool:
        """Whether there is a graph; captures it when it is worth it."""
        if self._refused or self.graph is not None:
            return not self._refused
        assert self.engine is not None
        key, held = ("spent", kind(self.problems[0])), keep(self.problems[0])
        spent = self.engine.kept(key, held, lambda: Spent([0]), lambda _: 0).numbers
        spent[0] += PROGRAM * len(self.problems) + 20 * sum(self.lengths)
        if spent[0] < WORTH:
            return False
        self._refused = not self._capture(self.engine)
        return not self._refused

    def _capture(self, engine: Engine) -> bool:
        try:
            graph = row_graph(self.problems[0], engine)
        except (NotVectorisable, RuntimeError):
            return False
        columns = list(zip(*[tensors_of(problem.batch) for problem in self.problems], strict=True))
        if any(value.ndim == 0 for column in columns for value in column):
            return False
        data = tuple(
            torch.cat(columns[place]) if len(columns[place]) > 1 else columns[place][0] for place in graph.needed
        )
        if not self._is_right(graph, data):
            return False
        self.graph, self.data = graph, data
        return True

    def _is_right(self, graph: RowGraph, data: Sequence[Tensor]) -> bool:
        """Whether the graph gives each client its own likelihood at random predictors."""
        total = sum(self.lengths)
        like = graph.example[0]
        generator = torch.Generator(device=like.device).manual_seed(0)
        f = torch.randn(total, generator=generator, dtype=like.dtype, device=like.device)
        parts = zip(f.split(graph.capacity), *[value.split(graph.capacity) for value in data], strict=True)
        found = torch.cat([graph.at(part, rest)[0] for part, *rest in parts])
        own = [
            _predictor(problem).log_prob(part)
            for problem, part in zip(self.problems, f.split(self.lengths), strict=True)
        ]
        return close(found, torch.cat(own), 1e4 * torch.finfo(f.dtype).eps)


def many_expectations(
    likelihoods: Sequence[RowLikelihood], moments: Sequence[tuple[Tensor, Tensor]]
) -> list[RowExpectations]:
    """Quadrature for blocks of clients from their predictors' means and standard deviations ``[m, n]``, as many.

    0 where there is no row.
    """
    found: dict[int, RowExpectations] = {}
    packs: dict[int, list[int]] = {}
    for index, (one, (loc, scale)) in enumerate(zip(likelihoods, moments, strict=True)):
        last = one.last(loc, scale)
        if last is not None:
            found[index] = last
        elif not one.ready():
            found[index] = one.one_by_one(loc, scale)
        else:
            packs.setdefault(id(one.graph.run) if one.graph is not None else 0, []).append(index)
    for members in packs.values():
        rows = _packed([likelihoods[index] for index in members], [moments[index] for index in members])
        found |= dict(zip(members, rows, strict=True))
    for index, one in enumerate(likelihoods):
        one.remember(*moments[index], found[index])
    return [found[index] for index in range(len(likelihoods))]


def _packed(likelihoods: Sequence[RowLikelihood], moments: Sequence[tuple[Tensor, Tensor]]) -> list[RowExpectations]:
    graph = likelihoods[0].graph
    assert graph is not None
    flat: list[list[Tensor]] = []
    for one, (mean, sd) in zip(likelihoods, moments, strict=True):
        sd = clamped(sd, one.widths)
        every = (mean, sd, classes(sd, one.widths))
        full = one.places.shape[0] == mean.numel()
        flat.append([value.flatten() if full else value.flatten()[one.places] for value in every])
    data = [
        torch.cat(values) if len(values) > 1 else values[0]
        for values in zip(*[one.data for one in likelihoods], strict=True)
    ]
    joined = [torch.cat(values) for values in zip(*flat, strict=True)]
    loc, scale, own = joined
    rows = packed_expectations(graph.at, graph.capacity, loc, scale, own, data)
    found = []
    sizes = [len(one.places) for one in likelihoods]
    for one, (loc, _), parts in zip(
        likelihoods, moments, zip(*[value.split(sizes) for value in rows], strict=True), strict=True
    ):
        found.append(RowExpectations(*[_placed(part, one.places, loc) for part in parts]))
    return found


def _placed(value: Tensor, places: Tensor, like: Tensor) -> Tensor:
    if len(places) == like.numel():
        return value.view_as(like)
    return like.new_zeros(like.numel()).index_copy_(0, places, value).view_as(like)


def _predictor(problem: LocalProblem) -> LinearPredictor:
    assert isinstance(problem.predictor, LinearPredictor)
    return problem.predictor
