"""The same fits on the CPU and on another device: seconds, and how far apart the answers are."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import pvi
from benchmarks.measure import synchronize
from benchmarks.problems import Rows, logistic
from benchmarks.tables import Fit, Report

FITS: dict[str, dict[str, Any]] = {
    "Newton, full covariance": {"guide": "full", "damping": 0.5, "rounds": 5},
    "Newton, Anderson": {"damping": 0.5, "rounds": 5, "acceleration": "anderson"},
    "SVI, 100 steps": {"solver": pvi.solvers.SVI(steps=100), "rounds": 2},
    "PyroSVI, 100 steps": {"solver": pvi.solvers.PyroSVI(steps=100), "rounds": 2},
}
"""The stochastic ones draw other numbers on a GPU: their answers differ by their noise."""


def timed(data: list[Rows], device: torch.device, options: dict[str, Any]) -> tuple[pvi.Result, float]:
    """The result and seconds of a run after a short one."""
    pvi.fit("logistic_regression", data, device=device, **(options | {"rounds": 1}))
    synchronize(device)
    began = time.perf_counter()
    result = pvi.fit("logistic_regression", data, device=device, **options)
    synchronize(device)
    return result, time.perf_counter() - began


def same_fits(device: torch.device, quick: bool) -> Callable[[Report], Iterator[str]]:
    """Five clients of 20,000 rows and 100 features, in double precision."""
    case = logistic(5, features=5 if quick else 100, rows=50 if quick else 20_000)
    data = [(x.double(), y.double()) for x, y in case.clients]

    def part(report: Report) -> Iterator[str]:
        for name, options in FITS.items():
            (here, seconds), (there, other) = (timed(data, one, options) for one in (torch.device("cpu"), device))
            apart = (there.posterior.mean["weights"].cpu() - here.posterior.mean["weights"]).abs()
            worst = (apart / here.posterior.sd["weights"]).max().item()
            report.fits.append(Fit(name, seconds, other, worst))
            yield f"{name}: {seconds:.2f} s on the CPU, {other:.2f} s on {device.type}, means {worst:.1e} sd apart"

    return part
