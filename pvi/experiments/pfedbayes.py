"""pFedBayes on images (Zhang et al. 2022, section 5): clients of five labels each, personal models and a global one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import pvi
from pvi import Result
from pvi.data import images, label_skew
from pvi.executors import Vectorised
from pvi.experiments import personal_figures
from pvi.experiments.claims import at_least, within
from pvi.experiments.personal import accuracies_at_mean, predictions
from pvi.experiments.protocol import Claim, Method, Setting
from pvi.experiments.published import FEDAVG, FEDPROX, PFEDBAYES, TABLE, ZETA_MEDIUM_MNIST
from pvi.models import bayesian_mlp, bayesian_vgg

SETS = {"mnist": images.mnist, "fmnist": images.fashion_mnist, "cifar10": images.cifar10}
CLIENTS = {"mnist": 10, "fmnist": 10, "cifar10": 20}
COUNTS = {
    "mnist": {"small": (50, 950), "medium": (200, 800), "large": (900, 300)},
    "fmnist": {"small": (50, 950), "medium": (200, 800), "large": (900, 300)},
    "cifar10": {"small": (25, 475), "medium": (100, 400), "large": (450, 150)},
}
"""Training and test images of each class at each client that holds it."""
STUDIES = ("table", "zeta", "rho", "uncertainty")
ZETAS, RHOS, ROUNDS = (0.5, 1.0, 5.0, 10.0, 20.0), (-1.0, -1.5, -2.0, -2.5, -3.0), (0, 1, 10)
LOCAL = "local BNN"
POINT, BASELINE = 1.0, 1.5
"""Percentage points that count as the same, of pFedBayes and of the baselines."""
UNSTATED = (
    "Not stated in the paper and chosen here: batches of 100, K = 5, R = 20, Adam for both levels with moments that "
    "last, means that start at Uniform(-0.1, 0.1), FedAvg's and FedProx's plain SGD. Published accuracies are peaks "
    "over rounds on the test rows, which pick on them: compare 'peak' with those, and read the last round for what to "
    "expect."
)
LOCAL_SCALE = 0.1
"""Standard deviation of the prior of weights that nobody shares."""


@dataclass(frozen=True)
class PFedBayes:
    """The options; see :class:`~pvi.experiments.protocol.Experiment`."""

    NAME: ClassVar[str] = "pfedbayes"
    QUICK: ClassVar[Mapping[str, Any]] = {
        "rounds": 40, "local_rounds": 20, "every": 20, "hidden": 30, "test_per_class": 200,
    }  # fmt: skip

    dataset: str = field(default="mnist", metadata={"help": f"{', '.join(SETS)}."})
    size: str = field(default="small", metadata={"help": "small, medium or large: images of a class at a client."})
    study: str = field(
        default="table",
        metadata={"help": "table (pFedBayes beside FedAvg, FedProx and local networks), zeta, rho or uncertainty."},
    )
    rounds: int = field(default=800, metadata={"help": "Rounds of every method."})
    seeds: int = field(default=1, metadata={"help": "Repetitions: another deal, other noise."})
    clients: int | None = field(default=None, metadata={"help": "Clients; if not given 10, or 20 (cifar10)."})
    labels: int = field(default=5, metadata={"help": "Labels that a client holds."})
    assignment: str = field(
        default="balanced", metadata={"help": "balanced (labels drawn), or two-types: only two kinds of clients."}
    )
    train_per_class: int | None = field(
        default=None, metadata={"help": "Training images of a class at a client; if not given the size's."}
    )
    test_per_class: int | None = field(
        default=None, metadata={"help": "Test images of a class at a client; if not given the size's."}
    )
    zeta: float = field(default=10.0, metadata={"help": "How much clients are drawn to the global model."})
    rho: float = field(default=-2.5, metadata={"help": "Start of the standard deviations, log(1 + exp rho)."})
    iterations: int = field(default=20, metadata={"help": "Local iterations R of every method."})
    particles: int = field(default=5, metadata={"help": "Draws K of the weights a step."})
    batch: int = field(default=100, metadata={"help": "Rows of a step."})
    rate: float = field(default=0.001, metadata={"help": "Learning rates of both levels (Adam)."})
    average: str = field(default="parameters", metadata={"help": "What the server averages: parameters or moments."})
    baseline_rate: float = field(default=0.001, metadata={"help": "Learning rate of FedAvg and FedProx (SGD)."})
    proximal: float = field(default=0.001, metadata={"help": "FedProx's pull to the global model."})
    local_rounds: int = field(default=200, metadata={"help": "Rounds of the networks that nobody shares."})
    hidden: int = field(default=100, metadata={"help": "Hidden units of the fully connected network."})
    samples: int = field(default=10, metadata={"help": "Posterior draws of a prediction."})
    every: int = field(default=50, metadata={"help": "Predict from draws after so many rounds, and at the end."})
    compile: bool = field(
        default=True, metadata={"help": "Compile the clients' step: half a minute once, then faster."}
    )

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {"dataset": SETS, "size": COUNTS["mnist"], "study": STUDIES}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {' or '.join(values)}, not {getattr(self, name)!r}")

    @property
    def number(self) -> int:
        """Clients."""
        return CLIENTS[self.dataset] if self.clients is None else self.clients

    @property
    def title(self) -> str:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        what = {"table": "", "zeta": ", by ζ", "rho": ", by ρ at the start", "uncertainty": ", uncertainty by rounds"}
        return (
            f"pFedBayes on {self.dataset}, {self.size}: {self.number} clients of {self.labels} labels{what[self.study]}"
        )

    @property
    def metrics(self) -> tuple[str, ...]:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        if self.study == "uncertainty":
            return (
                "pm",
                "gm",
                "pm_entropy",
                "gm_entropy",
                "pm_ece",
                "gm_ece",
                "pm_log_likelihood",
                "gm_log_likelihood",
            )
        return ("pm", "gm", "pm_peak", "gm_peak", "pm_at_mean", "gm_at_mean", "pm_log_likelihood", "pm_ece")

    def setting(self, seed: int, data_dir: str | None) -> Setting:
        """The images of both parts together, dealt to the clients: the large split needs most of them."""
        read = SETS[self.dataset]
        all_images = images.joined(read(data_dir, "train"), read(data_dir, "test"))
        train, test, note = self.counts(np.bincount(all_images.y.numpy()).tolist())
        split = label_skew(
            all_images.y.numpy(), self.number, self.labels, train, test, seed, self.assignment  # type: ignore[arg-type]
        )  # fmt: skip
        names = [f"client {index + 1}" for index in range(self.number)]

        def rows(parts: Sequence[Any]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
            chosen = [torch.as_tensor(part) for part in parts]
            return {name: (all_images.x[one], all_images.y[one]) for name, one in zip(names, chosen, strict=True)}

        clients, held_out = rows(split.train), rows(split.test)
        program = self.network()
        return Setting(
            model=program,
            guide=bayesian_mlp.mean_field_guide(program, seed=seed),
            clients=clients,
            test=(torch.cat([x for x, _ in held_out.values()]), torch.cat([y for _, y in held_out.values()])),
            test_by_client=held_out,
            parts=dict(zip(names, split.train, strict=True)),
            labels=all_images.y.numpy(),
            notes=tuple(text for text in (all_images.note, note, UNSTATED) if text),
        )

    def network(self, prior_scale: float = 1.0) -> Any:
        """The published ones: 784-100-10, and a small VGG for photos."""
        if self.dataset == "cifar10":
            return partial(bayesian_vgg.model, prior_scale=prior_scale)
        return partial(bayesian_mlp.model, hidden=self.hidden, classes=10, prior_scale=prior_scale)

    def counts(self, available: Sequence[int]) -> tuple[int, int, str]:
        """Images of a class at a client, scaled down where there are too few, and a note where they were."""
        published = COUNTS[self.dataset][self.size]
        train, test = (
            _or(given, own) for given, own in zip((self.train_per_class, self.test_per_class), published, strict=True)
        )
        most = min(available) * 10 // (self.number * self.labels)
        if train + test <= most:
            return train, test, ""
        fewer = min(train, 3 * most // 4)
        return fewer, most - fewer, (
            f"There are images for {most} of a class at a client: {fewer} for training and {most - fewer} for testing "
            f"in place of {train} and {test}."
        )  # fmt: skip

    def reference(self, setting: Setting) -> None:
        """Nothing is exact here."""

    def methods(self, setting: Setting) -> Sequence[Method]:
        """Those of the study."""
        if self.study == "zeta":
            return [self._method(f"ζ = {zeta:g}", self.rounds, zeta=zeta) for zeta in ZETAS]
        if self.study == "rho":
            return [self._method(f"ρ = {rho:g}", self.rounds, initial_rho=rho) for rho in RHOS]
        if self.study == "uncertainty":
            still: dict[str, Any] = {"learning_rate": 0.0, "global_learning_rate": 0.0}
            return [self._method(f"after {n} rounds", max(n, 1), **({} if n else still)) for n in ROUNDS]
        common: dict[str, Any] = {
            "local_iterations": self.iterations,
            "batch_size": self.batch,
            "learning_rate": self.baseline_rate,
        }
        alone: dict[str, Any] = {"zeta": 1.0, "global_learning_rate": 0.0, "initial_rho": None, "personal_init": "draw"}
        local = self._method(LOCAL, self.local_rounds, **alone)
        alone_model = {"guide": None, "model": self.network(LOCAL_SCALE)}
        return [
            self._method(PFEDBAYES, self.rounds),
            Method(FEDAVG, {"algorithm": pvi.FedAvg(**common), **self._run}, self.rounds),
            Method(FEDPROX, {"algorithm": pvi.FedProx(proximal=self.proximal, **common), **self._run}, self.rounds),
            Method(LOCAL, {**local.options, **alone_model}, self.local_rounds),
        ]

    @property
    def _run(self) -> dict[str, Any]:
        return {"executor": Vectorised(compile="auto" if self.compile else False), "elbo_samples": 2}

    def _method(self, name: str, rounds: int, **changed: Any) -> Method:
        options: dict[str, Any] = {
            "zeta": self.zeta, "local_iterations": self.iterations, "num_particles": self.particles,
            "initial_rho": self.rho, "batch_size": self.batch, "learning_rate": self.rate,
            "global_learning_rate": self.rate, "average": self.average,
        }  # fmt: skip
        return Method(name, {"algorithm": pvi.PFedBayes(**{**options, **changed}), **self._run}, rounds)

    def measure(self, result: Result, setting: Setting) -> dict[str, float]:
        """At the mean weights in every round, from draws in some and in the last."""
        found = accuracies_at_mean(result, setting.test_by_client)
        number = result.history[-1].number
        if number % self.every == 0 or number in (self.rounds, self.local_rounds) or self.study == "uncertainty":
            for prefix, predicted in predictions(result, setting.test_by_client, self.samples, number).items():
                found |= predicted.metrics(prefix)
        return found

    def claims(self) -> Sequence[Claim]:
        """The published table, or the study's."""
        if self.study == "zeta" and (self.dataset, self.size) == ("mnist", "medium"):
            known = {f"ζ = {zeta:g}": accuracy for zeta, accuracy in ZETA_MEDIUM_MNIST.items()}
        elif self.study == "table":
            known = {PFEDBAYES: TABLE[self.dataset, self.size][PFEDBAYES]}
        else:
            return []
        found = [
            Claim(f"{name}: {metric.upper()} {value:.2f} at its peak", at_least(name, f"{metric}_peak", value - POINT))
            for name, accuracy in known.items()
            for metric, value in accuracy._asdict().items()
            if value is not None
        ]
        for name in (FEDAVG, FEDPROX) if self.study == "table" else ():
            value = TABLE[self.dataset, self.size][name].gm
            assert value is not None
            found.append(Claim(f"{name}: GM {value:.2f} at its peak", within(name, "gm_peak", value, BASELINE)))
        return found

    def illustrate(self, folder: Path, result: Result, setting: Setting, method: str) -> None:
        """Class probabilities of some test images by the personal and the global model; see ``Illustrated``."""
        if self.study == "uncertainty":
            personal_figures.plot_probabilities(result, setting, self.samples, method, folder)


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given
