"""What a vectorised run keeps from step to step: stacked data and captured graphs. None of it changes an answer."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from pvi.capture import Captured, Compile, Function
from pvi.objectives import LocalProblem
from pvi.stack import Flat, NotVectorisable, Stack, check_stack, first_line, flatten, kind, partition, stack

MAX_GRAPHS = 64
MAX_STACKS = 256
MAX_BYTES = 2**30
"""Copies of data that are kept for the next round."""

T = TypeVar("T")


class Group(NamedTuple):
    """Positions of the problems that were asked for, and their stack."""

    members: list[int]
    stack: Stack


class Engine:
    """Stacks and graphs, the least recently used ones forgotten first."""

    def __init__(self, compile: Compile = "auto") -> None:
        self.compile = compile
        self._graphs: OrderedDict[Hashable, tuple[Any, Captured]] = OrderedDict()
        self._stacks: OrderedDict[Hashable, tuple[Any, Any, int]] = OrderedDict()

    def groups(self, problems: Sequence[LocalProblem], naturals: Sequence[Tensor], *, pad: bool = True) -> list[Group]:
        """The problems in stacks, tried out at draws from each client's proper ``naturals``.

        Raises :class:`~pvi.stack.NotVectorisable` where not even clients with equally many rows can be stacked.
        """
        try:
            return [self._group(members, problems, naturals) for members in partition(problems, pad=pad)]
        except NotVectorisable:
            if not pad:
                raise
            return [self._group(members, problems, naturals) for members in partition(problems, pad=False)]

    def _group(self, members: list[int], problems: Sequence[LocalProblem], naturals: Sequence[Tensor]) -> Group:
        chosen = [problems[index] for index in members]

        def build() -> Stack:
            found = stack(chosen)
            check_stack(found, chosen, torch.stack([naturals[index] for index in members]))
            return found

        found = self._kept("stack", chosen, build)
        assert isinstance(found, Stack)
        longest = max(range(len(chosen)), key=found.rows.__getitem__)
        return Group(members, found._replace(problem=chosen[longest]))

    def flats(
        self, problems: Sequence[LocalProblem], naturals: Sequence[Tensor], batch_size: int
    ) -> list[tuple[list[int], Flat]]:
        """The problems by kind with their rows end to end, for mini-batches of ``batch_size`` rows.

        Raises :class:`~pvi.stack.NotVectorisable` where mini-batches cannot be computed together.
        """
        kinds: dict[Hashable, list[int]] = {}
        for index, problem in enumerate(problems):
            if any(site.by_row for site in problem.program.sites.private):
                raise NotVectorisable("it has latents with one private value a row")
            kinds.setdefault(kind(problem), []).append(index)
        return [(members, self._flat(members, problems, naturals, batch_size)) for members in kinds.values()]

    def _flat(
        self, members: list[int], problems: Sequence[LocalProblem], naturals: Sequence[Tensor], batch_size: int
    ) -> Flat:
        chosen = [problems[index] for index in members]

        def build() -> Flat:
            heads = [
                problem._replace(batch=problem.batch.take(torch.arange(batch_size, device=problem.batch.device)))
                for problem in chosen
            ]
            check_stack(stack(heads), heads, torch.stack([naturals[index] for index in members]))
            return flatten(chosen)

        found = self._kept(f"rows by {batch_size}", chosen, build)
        assert isinstance(found, Flat)
        return found._replace(problem=chosen[0])

    def _kept(self, what: str, problems: list[LocalProblem], build: Callable[[], Stack | Flat]) -> Stack | Flat:
        key = (what, *(id(problem.batch) for problem in problems))
        # The batches are kept with what is made of them, so that their ids stay theirs.
        return self.kept(key, [problem.batch for problem in problems], build, _copied)

    def kept(self, key: Hashable, keep: Any, build: Callable[[], T], size: Callable[[T], int]) -> T:
        """What ``build()`` makes of clients' data, for the next round; ``size`` tells the bytes of its copies.

        Whatever the key's ids stand for belongs in ``keep``.
        """
        if key not in self._stacks:
            found = build()
            self._stacks[key] = keep, found, size(found)
        self._stacks.move_to_end(key)
        value: T = self._stacks[key][1]
        while len(self._stacks) > MAX_STACKS or (len(self._stacks) > 1 and self._bytes() > MAX_BYTES):
            self._stacks.popitem(last=False)
        return value

    def _bytes(self) -> int:
        return sum(bytes_ for _, _, bytes_ in self._stacks.values())

    def captured(
        self, key: Hashable, keep: Any, function: Callable[[], Function], example: Sequence[Tensor]
    ) -> Captured:
        """The graph of ``function()`` under a key, captured at the first call.

        Whatever the key's ids stand for belongs in ``keep``. Raises :class:`~pvi.stack.NotVectorisable` where the
        function cannot be captured.
        """
        shapes = tuple((tuple(value.shape), value.dtype, value.device) for value in example)
        whole = (key, shapes)
        if whole not in self._graphs:
            self._graphs[whole] = keep, self._capture(function(), tuple(example))
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(whole)
        return self._graphs[whole][1]

    def _capture(self, function: Function, example: tuple[Tensor, ...]) -> Captured:
        try:
            return Captured(function, example, self.compile)
        except torch.linalg.LinAlgError:
            raise
        except Exception as error:
            # Programs may do what has no place in a graph: turn a tensor into a number, for one.
            raise NotVectorisable(f"its model cannot be captured as a graph: {first_line(error)}") from error


def _copied(found: Stack | Flat) -> int:
    return sum(value.nbytes for value in found.tensors) if len(found.rows) > 1 else 0
