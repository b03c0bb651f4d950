"""FOLA's published network for CIFAR-10 on a device, for some seconds."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

import pvi
from benchmarks.photo_run import made_up, photo_part
from benchmarks.tables import Report
from pvi.experiments import FOLAStudy
from pvi.experiments.fola_accuracy import global_and_local
from pvi.experiments.fola_data import clients_of, dirichlet_parts
from pvi.experiments.protocol import Setting
from pvi.models import bayesian_mlp

LIMIT = 20.0
"""Seconds of rounds, after the first."""
FULL = FOLAStudy(dataset="cifar10")
QUICK = replace(FULL, clients=4, epochs=1, batch=5, train=40, test=20, rounds=3, compile=False)


def laplace_rounds(device: torch.device, quick: bool) -> Callable[[Report], Iterator[str]]:
    """As many rounds as fit."""
    experiment = QUICK if quick else FULL

    def accuracies(result: pvi.Result, setting: Setting) -> tuple[float, float]:
        found = global_and_local(result, setting.clients, setting.test)
        return found["la"], found["ga"]

    return photo_part(
        "FOLA, two convolutions", experiment, lambda: problem(experiment), accuracies, device, LIMIT, quick
    )


def problem(experiment: FOLAStudy) -> Setting:
    """The experiment's clients, of made-up images."""
    images, test = made_up(experiment.train or 10_000), made_up(experiment.test or 1_000)
    parts = dirichlet_parts(images.y.numpy(), experiment.clients, experiment.alpha, 0)
    program = experiment.network()
    guide = bayesian_mlp.mean_field_guide(program, loc_range="fan-in", seed=0)
    return Setting(program, clients_of(images, parts), (test.x, test.y), guide)
