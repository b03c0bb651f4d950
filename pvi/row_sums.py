"""The likelihoods of several clients' rows at the nodes of a quadrature: the program once for all clients.

A program is run on the clients' rows end to end, or under ``vmap``, if that gives each client its own likelihood at a
trial, else client by client. What has run often is captured as a graph, which leaves out the Python of the program and
the predictor that nodes take the place of.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from pvi.capture import Captured
from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.programs.linear_predictor import LinearPredictor
from pvi.programs.row_likelihood import close, row_log_prob
from pvi.programs.weighted import refill
from pvi.quadrature import RowExpectations, many_expectations, weighted_sums
from pvi.stack import NotVectorisable, keep, kind, stack

Likelihood = Callable[..., Tensor]
"""(f ``[k, m n]``, *data) -> log p ``[k, m n]``."""

WORTH = 10
"""Runs of a program after which it is captured: about what that costs."""
NUMBERS = 2**15
"""Numbers in one run of a graph on the CPU; on a GPU, where small kernels cost as much as large ones, many more."""


class RowSums:
    """Quadrature over m clients' rows, each client's padded to n.

    ``engine`` keeps graphs; without one nothing is captured. ``at_once`` is the number of nodes that the captured graph
    takes, ``None`` as long as there is none.
    """

    def __init__(self, problems: Sequence[LocalProblem], engine: Engine | None) -> None:
        self.engine = engine
        self.at_once: int | None = None
        self._runs = 0
        self._own = partial(_one_by_one, problems)
        self._likelihood: Likelihood | None = None
        self._graph: Captured | None = None
        self._last: tuple[Tensor, Tensor, RowExpectations] | None = None
        if engine is None:
            return
        stacked = stack(problems)
        self._problem, self._shape = stacked.problem, (len(problems), max(stacked.rows))
        present = None if stacked.weights is None else stacked.weights.flatten() > 0
        for likelihood, data in _together(stacked.problem, stacked.tensors, self._shape):
            if self._is_right(likelihood, data, present):
                self._likelihood, self._data = likelihood, data
                break

    def expectations(self, loc: Tensor, scale: Tensor, widths: Sequence[float]) -> RowExpectations:
        """Expectations under N(loc, scale²), each ``[m, n]``; the last ones are kept."""
        if self._last is not None and torch.equal(loc, self._last[0]) and torch.equal(scale, self._last[1]):
            return self._last[2]
        found = many_expectations(self._sums, loc, scale, widths, self.at_once)
        if self.engine is not None:
            self._last = loc, scale, found
        return found

    def _sums(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        if self._graph is not None:
            values, slopes = self._graph(*given, *self._data)
            return values, slopes
        if self._likelihood is None:
            return weighted_sums(self._own, *given)
        self._runs += 1
        found = _sums(self._likelihood, *given, *self._data)
        if self._runs == WORTH:
            self._capture(*given[:2])
        return found

    def _is_right(self, likelihood: Likelihood, data: Sequence[Tensor], present: Tensor | None) -> bool:
        """Whether the likelihood is that of the clients one by one, at random predictors."""
        m, n = self._shape
        dtype, device = self._problem.batch.dtype, self._problem.batch.device
        generator = torch.Generator(device=device).manual_seed(0)
        f = torch.randn(3, m * n, generator=generator, dtype=dtype, device=device)
        try:
            with torch.no_grad():
                found = likelihood(f, *data)
        except Exception:
            # Programs may raise whatever they like on data that is not theirs.
            return False
        if found.shape != f.shape:
            return False
        own = self._own(f)
        if present is not None:
            found, own = found[:, present], own[:, present]
        return close(found, own, 1e4 * torch.finfo(dtype).eps)

    def _capture(self, loc: Tensor, scale: Tensor) -> None:
        assert self.engine is not None
        assert self._likelihood is not None
        limit = NUMBERS if loc.device.type == "cpu" else 2**22
        number = min(16, max(4, limit // loc.numel()))
        nodes = torch.linspace(-1, 1, number, dtype=loc.dtype, device=loc.device)
        both = torch.stack([torch.ones_like(nodes), nodes]).expand(len(loc), 2, number).contiguous()
        example = (loc, scale, nodes[:, None].expand(number, len(loc)).contiguous(), both, both, *self._data)
        function = partial(_sums, self._likelihood)
        key = ("rows", kind(self._problem), self._shape, len(self._data))
        try:
            graph = self.engine.captured(key, keep(self._problem), lambda: function, example)
            pairs = zip(graph(*example), function(*example), strict=True)
            right = all(close(one, other, 1e4 * torch.finfo(loc.dtype).eps) for one, other in pairs)
        except (NotVectorisable, RuntimeError):
            return
        if right:
            self._graph, self.at_once = graph, number


def _sums(
    likelihood: Likelihood, loc: Tensor, scale: Tensor, nodes: Tensor, even: Tensor, odd: Tensor, *data: Tensor
) -> tuple[Tensor, Tensor]:
    return weighted_sums(lambda f: likelihood(f, *data), loc, scale, nodes, even, odd)


def _one_by_one(problems: Sequence[LocalProblem], f: Tensor) -> Tensor:
    """Each client's own likelihood; padding counts 0."""
    if len(problems) == 1:
        return _predictor(problems[0]).log_prob(f)
    longest = f.shape[1] // len(problems)
    parts = []
    for problem, own in zip(problems, f.split(longest, 1), strict=True):
        found = _predictor(problem).log_prob(own[:, : problem.batch.num_rows])
        parts.append(torch.nn.functional.pad(found, (0, longest - found.shape[1])))
    return torch.cat(parts, 1)


def _predictor(problem: LocalProblem) -> LinearPredictor:
    assert isinstance(problem.predictor, LinearPredictor)
    return problem.predictor


def _together(
    problem: LocalProblem, tensors: Sequence[Tensor], shape: tuple[int, int]
) -> list[tuple[Likelihood, tuple[Tensor, ...]]]:
    """Ways to run the program for all clients, the cheapest first, and the data that each takes."""
    zero = tensors[0].new_zeros(problem.family.size, dtype=problem.batch.dtype)

    def run(f: Tensor, *data: Tensor) -> Tensor:
        return row_log_prob(problem.program, refill(problem.batch, data), zero, f)

    def mapped(f: Tensor, *data: Tensor) -> Tensor:
        return torch.func.vmap(lambda one: run(one, *data))(f)

    def by_client(f: Tensor, *data: Tensor) -> Tensor:
        return torch.func.vmap(mapped, in_dims=(1, *(0 for _ in data)), out_dims=1)(
            f.unflatten(1, shape), *data
        ).flatten(1)

    ways: list[tuple[Likelihood, tuple[Tensor, ...]]] = [(by_client, tuple(tensors))]
    if shape[0] == 1 or all(value.ndim > 1 for value in tensors):
        pooled = tuple(value.flatten(0, 1) if value.ndim > 1 else value[0] for value in tensors)
        ways = [(run, pooled), (mapped, pooled), *ways]
    return ways
