"""Memory and time of one synchronous round of :func:`pvi.fit`, each number of clients in a process of its own.

As a script, ``python memory.py CLIENTS ROWS PARAMETERS`` is such a process.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LIMIT = 8.0
"""Gigabytes that 10,000 clients with 1,000 shared parameters may take."""
STEPS = 20
"""Of SVI for every client."""


class Peak(NamedTuple):
    """One round of so many clients: gigabytes at most in memory, those of the clients' rows among them, and seconds.

    ``start`` is before the round (looking at the model at every client), ``clients`` their solves and their terms of
    the free energy, ``server`` all else of the round.
    """

    number: int
    peak: float
    data: float
    start: float
    clients: float
    server: float


def peaks(numbers: Sequence[int], rows: int = 5, parameters: int = 1000) -> Iterator[Peak]:
    """One process after the other."""
    for number in numbers:
        command = [sys.executable, str(Path(__file__)), *map(str, (number, rows, parameters))]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        yield Peak(number, *json.loads(found.splitlines()[-1]))


def measure(number: int, rows: int, parameters: int) -> tuple[float, ...]:
    """The numbers of a :class:`Peak` in this process: mean-field logistic regression, single precision."""
    import torch

    import pvi
    from pvi.executors import Auto

    class Timed(Auto):
        """The default executor, with a clock."""

        seconds = 0.0

        def run(self, *given: Any, **options: Any) -> Any:
            return timed(super().run, *given, **options)

        def terms(self, *given: Any) -> Any:
            return timed(super().terms, *given)

    def timed(action: Any, *given: Any, **options: Any) -> Any:
        began = time.perf_counter()
        found = action(*given, **options)
        Timed.seconds += time.perf_counter() - began
        return found

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(rows, parameters - 1, generator=generator), (torch.rand(rows, generator=generator) < 0.5).float())
        for _ in range(number)
    ]
    solver = pvi.solvers.SVI(steps=STEPS)
    began = time.perf_counter()
    result = pvi.fit("logistic_regression", data, rounds=1, schedule="synchronous", solver=solver, executor=Timed())
    whole, played = time.perf_counter() - began, result.history[0].seconds
    size = sum(x.nbytes + y.nbytes for x, y in data)
    return most_memory() / 1e9, size / 1e9, whole - played, Timed.seconds, played - Timed.seconds


def most_memory() -> int:
    """Bytes of memory that this process had at most; on Linux, what getrusage says starts with the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))))
