"""CUDA graphs: all kernels of a function recorded once and launched together."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Run = Callable[..., tuple[Tensor, ...]]

WARM_UP = 3
"""Runs on a stream of their own before the recording, as CUDA wants it."""


class Replayed:
    """A function of CUDA tensors, recorded at its arguments' shapes; it must change no argument in place.

    Arguments that are the same tensors as in the call before, unchanged, are not copied again.
    """

    def __init__(self, run: Run, example: Sequence[Tensor]) -> None:
        self._inputs = [value.clone() for value in example]
        self._last: list[tuple[Tensor | None, int]] = [(None, 0)] * len(self._inputs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run(*self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = run(*self._inputs)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The function's outputs, the caller's own."""
        for index, (slot, value) in enumerate(zip(self._inputs, tensors, strict=True)):
            last, version = self._last[index]
            if value is not last or value._version != version:
                slot.copy_(value)
                self._last[index] = value, value._version
        self._graph.replay()
        return tuple(value.clone() for value in self._outputs)
