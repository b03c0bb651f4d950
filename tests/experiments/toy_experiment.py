"""An experiment of a dozen lines: two clients, a few rows, seconds."""

from dataclasses import dataclass, field

import torch

from pvi.diagnostics import heldout_classification
from pvi.experiments.claims import reaches
from pvi.experiments.protocol import Claim, Method, Setting
from pvi.solvers import SVI

BEST, PVI, ADAM, VCL = "global VI", "PVI", "global VI, Adam", "VCL"
SHIFT = 0.0
"""Added to the first cell: other data under the same options."""


def rows(seed, number):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 2, generator=generator, dtype=torch.float64)
    y = torch.bernoulli(torch.sigmoid(2 * x[:, 0] - x[:, 1]), generator=generator)
    x[0, 0] += SHIFT
    return x, y


@dataclass(frozen=True)
class Toy:
    NAME = "toy"
    QUICK = {"rounds": 2}  # noqa: RUF012
    title = "A toy of two clients"
    metrics = ("log_likelihood", "accuracy", "elbo_gap", "kl")

    rows: int = field(default=60, metadata={"help": "Rows."})
    seeds: int = field(default=2, metadata={"help": "Repetitions."})
    rounds: int = field(default=4, metadata={"help": "Rounds."})
    every: int = field(default=1, metadata={"help": "Measure after so many rounds."})

    def setting(self, seed, data_dir):
        x, y = rows(seed, self.rows)
        test = rows(100 + seed, 50)
        third = self.rows // 3
        clients = {"north": (x[:third], y[:third]), "south": (x[third:], y[third:])}
        parts = {"north": range(third), "south": range(third, self.rows)}
        return Setting("logistic_regression", clients, test, parts=parts, labels=y.long().numpy(), notes=("A note.",))

    def reference(self, setting):
        return Method(BEST, {"algorithm": "global-vi"})

    def methods(self, setting):
        adam = {"algorithm": "global-vi", "solver": SVI(steps=5, plain=True), "elbo_samples": 7, "executor": "loop"}
        return (
            Method(PVI, {"damping": 0.5}, self.rounds, every=self.every),
            Method(ADAM, adam, 3, messages=10),
            Method(VCL, {"algorithm": "vcl"}),
        )

    def measure(self, result, setting):
        return heldout_classification(result, setting.test)

    def claims(self):
        return [Claim("PVI reaches global VI", reaches(PVI, BEST, "log_likelihood", 0.05))]
