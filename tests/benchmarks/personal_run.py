"""pFedBayes' published network for CIFAR-10 on a device: as many rounds as fit a minute, and what they come to."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

import pvi
from benchmarks.measure import synchronize
from benchmarks.personal_table import PersonalRun
from benchmarks.tables import Report
from pvi.data.images import CIFAR_FILES, OBJECTS, Images
from pvi.experiments import PFedBayes
from pvi.experiments.personal import accuracies_at_mean
from pvi.experiments.protocol import Setting
from pvi.experiments.published import Counts
from pvi.experiments.skewed_images import deal

LIMIT = 60.0
"""Seconds of rounds, after the first."""
FULL = PFedBayes(dataset="cifar10", size="small")
QUICK = replace(
    FULL, clients=4, iterations=2, particles=1, batch=5, train_per_class=5, test_per_class=5, rounds=3, compile=False
)


def personal_rounds(device: torch.device, quick: bool) -> Callable[[Report], Iterator[str]]:
    """Vectorised rounds of the experiment's own options; the first one captures and compiles."""
    experiment = QUICK if quick else FULL

    def part(report: Report) -> Iterator[str]:
        setting, real = problem(experiment, quick)
        method, *_ = experiment.methods(setting)
        seconds: list[float] = []
        synchronize(device)
        began = clock = time.perf_counter()
        options = {"rounds": method.rounds, "device": device, **method.options}
        for result in pvi.fit_rounds(setting.model, setting.clients, setting.guide, **options):  # noqa: B007
            synchronize(device)
            seconds.append(time.perf_counter() - clock)
            clock = time.perf_counter()
            if clock - began > LIMIT + seconds[0]:
                break
        found = accuracies_at_mean(result, setting.test_by_client)
        images = "CIFAR-10" if real else "made-up photos"
        run = PersonalRun(images, len(setting.clients), len(seconds), seconds[0], median(seconds[1:] or seconds),
                          found["pm_at_mean"], found["gm_at_mean"])  # fmt: skip
        report.personal.append(run)
        yield (
            f"pFedBayes, VGG, {images}, {run.clients} clients: {run.rounds} rounds, {run.seconds:.2f} s each after "
            f"{run.first:.1f} s, PM {run.pm:.1f} %, GM {run.gm:.1f} %"
        )

    return part


def problem(experiment: PFedBayes, quick: bool) -> tuple[Setting, bool]:
    """The experiment's clients, and whether their images are real: made up where PVI_DATA has none, and quickly."""
    folder = os.environ.get("PVI_DATA")
    if folder and not quick and all((Path(folder) / file).exists() for file in CIFAR_FILES.values()):
        return experiment.setting(0, folder), True
    counts = Counts(experiment.train_per_class or 25, experiment.test_per_class or 175)
    images = made_up(sum(counts) * experiment.number * experiment.labels)
    dealt = deal(images, experiment.number, experiment.labels, counts, 0, "balanced")
    program = experiment.network()
    guide = pvi.models.bayesian_mlp.mean_field_guide(program)
    return Setting(program, dealt.clients, dealt.test_rows, guide, test_by_client=dealt.test), False


def made_up(number: int) -> Images:
    """Photos of noise about a pattern of their class."""
    generator = torch.Generator().manual_seed(0)
    patterns, y = torch.rand(10, 3, 8, 8, generator=generator).repeat(1, 1, 4, 4), torch.arange(number) % 10
    x = 0.5 * (patterns[y] + torch.rand(number, 3, 32, 32, generator=generator))
    return Images("made up", x, y, OBJECTS)
