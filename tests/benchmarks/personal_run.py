"""pFedBayes' published network for CIFAR-10 on a device, for the better part of a minute."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

import pvi
from benchmarks.photo_run import made_up, photo_part
from benchmarks.tables import Report
from pvi.experiments import PFedBayes
from pvi.experiments.personal import accuracies_at_mean
from pvi.experiments.protocol import Setting
from pvi.experiments.published import Counts
from pvi.experiments.skewed_images import deal

LIMIT = 40.0
"""Seconds of rounds, after the first."""
FULL = PFedBayes(dataset="cifar10", size="small")
QUICK = replace(
    FULL, clients=4, iterations=2, particles=1, batch=5, train_per_class=5, test_per_class=5, rounds=3, compile=False
)


def personal_rounds(device: torch.device, quick: bool) -> Callable[[Report], Iterator[str]]:
    """As many rounds as fit."""
    experiment = QUICK if quick else FULL

    def accuracies(result: pvi.Result, setting: Setting) -> tuple[float, float]:
        found = accuracies_at_mean(result, setting.test_by_client)
        return found["pm_at_mean"], found["gm_at_mean"]

    return photo_part("pFedBayes, VGG", experiment, lambda: problem(experiment), accuracies, device, LIMIT, quick)


def problem(experiment: PFedBayes) -> Setting:
    """The experiment's clients, of made-up images."""
    counts = Counts(experiment.train_per_class or 25, experiment.test_per_class or 175)
    images = made_up(sum(counts) * experiment.number * experiment.labels)
    dealt = deal(images, experiment.number, experiment.labels, counts, 0, "balanced")
    program = experiment.network()
    guide = pvi.models.bayesian_mlp.mean_field_guide(program)
    return Setting(program, dealt.clients, dealt.test_rows, guide, test_by_client=dealt.test)
