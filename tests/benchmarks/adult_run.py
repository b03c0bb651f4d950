"""Adult, split B: seconds of twenty rounds with exact local solves, by damping and executor."""

import os
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import pvi
from pvi.data import SPLIT_B, small_large
from pvi.executors import Auto, Executor, Loop

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "adult.py"
EXECUTORS: dict[str, Callable[[], Executor]] = {"default executor": Auto, "loop": Loop}


class Spent(NamedTuple):
    """Seconds of :func:`pvi.fit` from the rows to the result: on the clock, and of the processor.

    The latter are what the clock would say on a machine with nothing else to do.
    """

    clock: float
    processor: float


def seconds(rounds: int = 20, repeats: int = 3) -> dict[str, list[Spent]]:
    """Every run ``repeats`` times, in turns; empty where ``PVI_DATA`` does not lead to the data."""
    if not (Path(os.environ.get("PVI_DATA", "")) / "adult").is_dir():
        return {}
    script = runpy.run_path(str(SCRIPT))
    x, y = script["rows"]()
    clients = [
        (x[rows], y[rows])
        for rows in small_large(y.tolist(), 10, SPLIT_B["size_imbalance"], SPLIT_B["class_imbalance"])
    ]
    # The first use of a solver imports half of torch: not a cost of any method.
    pvi.fit("logistic_regression", [(torch.ones(2, 1), torch.tensor([0.0, 1.0]))], rounds=1)
    found: dict[str, list[Spent]] = {}
    for _ in range(repeats):
        for label, options in script["RUNS"].items():
            for name, executor in EXECUTORS.items():
                spent = run(clients, executor(), options | {"rounds": rounds})
                found.setdefault(f"{label}, {name}", []).append(spent)
    return found


def run(clients: list[tuple[Tensor, Tensor]], executor: Executor, options: dict[str, Any]) -> Spent:
    """One run, graphs and all."""
    began, processor = time.perf_counter(), time.process_time()
    pvi.fit("logistic_regression", clients, executor=executor, **options)
    return Spent(time.perf_counter() - began, time.process_time() - processor)
