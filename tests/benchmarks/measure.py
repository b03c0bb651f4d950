"""Timing: interleaved repeats of several contenders, in microseconds a client-step, and their ratios.

On a CPU it is the processor's time of this process, which works in one thread: what else runs on the machine adds
little to it. On a GPU it is the clock on the wall.
"""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch


class Contender(NamedTuple):
    """One way to run a case: ``advance(steps)`` takes so many steps of all clients; ``setup`` seconds came before."""

    name: str
    clients: int
    advance: Callable[[int], None]
    setup: float


class Spread(NamedTuple):
    """Median, smallest and largest of the repeats."""

    median: float
    low: float
    high: float


class Timings(NamedTuple):
    """Microseconds a client-step by contender, one number a repeat, and the seconds of its set-up."""

    repeats: dict[str, list[float]]
    setup: dict[str, float]

    def cost(self, name: str) -> Spread:
        """Microseconds a client-step."""
        return spread(self.repeats[name])

    def ratio(self, above: str, below: str) -> Spread:
        """Of two contenders' costs, repeat by repeat: what slows both at a time leaves it as it is."""
        pairs = zip(self.repeats[above], self.repeats[below], strict=True)
        return spread([one / other for one, other in pairs])


def spread(values: Sequence[float]) -> Spread:
    """Median, smallest and largest."""
    return Spread(statistics.median(values), min(values), max(values))


def synchronize(device: torch.device) -> None:
    """Wait for a GPU to be done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(action: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    synchronize(device)
    began = clock()
    action()
    synchronize(device)
    return clock() - began


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log cost against log size by least squares: 1 where the cost is linear."""
    x, y = ([math.log(value) for value in values] for values in (sizes, costs))
    return statistics.linear_regression(x, y).slope


def steps_for(contender: Contender, target: float, device: torch.device) -> int:
    """Steps that take about ``target`` seconds and no less than half of what a start takes, at least 2."""
    steps = 2
    contender.advance(1)
    target = max(target, seconds(lambda: contender.advance(1), device) / 2)
    while True:
        fewer, more = (seconds(lambda n=n: contender.advance(n), device) for n in (steps, 3 * steps))  # type: ignore[misc]
        taken = more - fewer
        if taken > target / 4:
            return max(2, round(2 * steps * target / taken))
        steps = 3 * steps


def timings(contenders: Sequence[Contender], repeats: int, target: float, device: torch.device) -> Timings:
    """Every contender ``repeats`` times in turns, in a new order each time.

    A repeat is the difference between many steps and a fifth as many, so that the start of a solve is no part of it.
    """
    many = {one.name: steps_for(one, target, device) for one in contenders}
    found: dict[str, list[float]] = {one.name: [] for one in contenders}
    order, shuffler = list(contenders), random.Random(0)
    for _ in range(repeats):
        shuffler.shuffle(order)
        for one in order:
            gc.collect()
            gc.disable()
            found[one.name].append(1e6 * difference(one, many[one.name], device) / (many[one.name] * one.clients))
            gc.enable()
    return Timings(found, {one.name: one.setup for one in contenders})


def difference(contender: Contender, many: int, device: torch.device) -> float:
    """Seconds that ``many`` more steps take; on a machine so busy that it is none, a nanosecond."""
    few = max(1, many // 5)
    short, long = (seconds(lambda n=n: contender.advance(n), device) for n in (few, few + many))  # type: ignore[misc]
    return max(long - short, 1e-9)
