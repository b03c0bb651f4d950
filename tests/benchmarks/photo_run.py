"""Rounds of an experiment's first method on photos, on a device: as many as fit a time, and what they come to."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch

import pvi
from benchmarks.measure import synchronize
from benchmarks.photo_table import PhotoRun
from benchmarks.tables import Report
from pvi.data.images import CIFAR_FILES, OBJECTS, Images
from pvi.experiments.protocol import Experiment, Setting


def photo_part(
    name: str,
    experiment: Experiment,
    made_up_problem: Callable[[], Setting],
    accuracies: Callable[[pvi.Result, Setting], tuple[float, float]],
    device: torch.device,
    limit: float,
    quick: bool,
) -> Callable[[Report], Iterator[str]]:
    """Vectorised rounds of the experiment's own options for ``limit`` seconds after the first, which compiles.

    ``accuracies`` gives the clients' and the server's, in this order.
    """

    def part(report: Report) -> Iterator[str]:
        folder = real_folder(quick)
        setting = experiment.setting(0, folder) if folder else made_up_problem()
        method, *_ = experiment.methods(setting)
        seconds: list[float] = []
        synchronize(device)
        clock = time.perf_counter()
        own = {"clients": setting.clients, **method.options}
        rounds = pvi.fit_rounds(setting.model, guide=setting.guide, rounds=method.rounds, device=device, **own)
        for result in rounds:  # noqa: B007
            synchronize(device)
            seconds.append(time.perf_counter() - clock)
            clock = time.perf_counter()
            if sum(seconds[1:]) > limit:
                break
        images, later = "CIFAR-10" if folder else "made-up photos", median(seconds[1:] or seconds)
        run = PhotoRun(
            name, images, len(setting.clients), len(seconds), seconds[0], later, *accuracies(result, setting)
        )
        report.photos.append(run)
        yield str(run)

    return part


def real_folder(quick: bool) -> str | None:
    """Where the real photos are, if there are any and they are wanted."""
    folder = os.environ.get("PVI_DATA")
    found = folder and not quick and all((Path(folder) / file).exists() for file in CIFAR_FILES.values())
    return folder if found else None


def made_up(number: int) -> Images:
    """Photos of noise about a pattern of their class."""
    generator = torch.Generator().manual_seed(0)
    patterns, y = torch.rand(10, 3, 8, 8, generator=generator).repeat(1, 1, 4, 4), torch.arange(number) % 10
    x = 0.5 * (patterns[y] + torch.rand(number, 3, 32, 32, generator=generator))
    return Images("made up", x, y, OBJECTS)
