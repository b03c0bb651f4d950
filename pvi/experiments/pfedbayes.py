"""pFedBayes on images (Zhang et al. 2022, section 5): clients of five labels each, personal models and a global one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import pvi
from pvi import Result
from pvi.data.partition.label_skew import Assignment
from pvi.executors import Vectorised
from pvi.experiments import personal_figures
from pvi.experiments.personal import accuracies_at_mean, predictions
from pvi.experiments.protocol import Claim, Method, Setting
from pvi.experiments.published import CLIENTS, COUNTS, FEDAVG, FEDPROX, PFEDBAYES, TABLE, ZETA_MEDIUM_MNIST, peaks
from pvi.experiments.skewed_images import CLASSES, SETS, both_parts, counts_of, deal
from pvi.models import bayesian_mlp, bayesian_vgg

STUDIES = ("table", "zeta", "rho", "uncertainty")
ZETAS, RHOS, ROUNDS = (0.5, 1.0, 5.0, 10.0, 20.0), (-1.0, -1.5, -2.0, -2.5, -3.0), (0, 1, 10)
PREDICTED = ("_entropy", "_ece", "_log_likelihood")
LOCAL = "local BNN"
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
    mean_every: int = field(default=1, metadata={"help": "Predict at the mean weights after so many rounds."})
    every: int = field(default=50, metadata={"help": "Predict from draws after so many rounds, and at the end."})
    compile: bool = field(
        default=True, metadata={"help": "Compile the clients' step: half a minute once, then faster."}
    )

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {
            "dataset": SETS, "size": COUNTS["mnist"], "study": STUDIES, "assignment": get_args(Assignment),
        }  # fmt: skip
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {' or '.join(values)}, not {getattr(self, name)!r}")
        for name in ("clients", "train_per_class", "test_per_class", "hidden", "samples", "every", "mean_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 1 <= self.labels <= CLASSES:
            raise ValueError(f"labels is from 1 to {CLASSES}, the number of classes, not {self.labels}")

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
            return tuple(f"{prefix}{what}" for what in ("", *PREDICTED) for prefix in ("pm", "gm"))
        return ("pm", "gm", "pm_peak", "gm_peak", "pm_at_mean", "gm_at_mean", "pm_log_likelihood", "pm_ece")

    def setting(self, seed: int, data_dir: str | None) -> Setting:
        """The images of both parts together, dealt to the clients: the large split needs most of them."""
        found = both_parts(self.dataset, data_dir)
        counts, note = counts_of(
            found, self.number, self.labels, COUNTS[self.dataset][self.size], self.train_per_class, self.test_per_class
        )
        dealt = deal(found, self.number, self.labels, counts, seed, self.assignment)  # type: ignore[arg-type]
        program = self.network()
        return Setting(
            model=program,
            guide=bayesian_mlp.mean_field_guide(program, seed=seed),
            clients=dealt.clients,
            test=dealt.test_rows,
            test_by_client=dealt.test,
            parts=dealt.parts,
            labels=found.y.numpy(),
            notes=tuple(text for text in (found.note, note, UNSTATED) if text),
        )

    def network(self, prior_scale: float = 1.0) -> Any:
        """The published ones: 784-100-10, and a small VGG for photos."""
        if self.dataset == "cifar10":
            return partial(bayesian_vgg.model, prior_scale=prior_scale)
        return partial(bayesian_mlp.model, hidden=self.hidden, classes=CLASSES, prior_scale=prior_scale)

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
        alone: dict[str, Any] = {
            "zeta": 1.0,
            "global_learning_rate": 0.0,
            "initial_rho": None,
            "personal_init": "draw",
            "average": "parameters",
        }
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
        """At the mean weights in every round, from draws in some, by both in the last."""
        tests, number = setting.test_by_client, result.history[-1].number
        both, last = self.study == "uncertainty", number in (self.rounds, self.local_rounds)
        found = accuracies_at_mean(result, tests) if both or last or number % self.mean_every == 0 else {}
        if both or last or number % self.every == 0:
            for prefix, predicted in predictions(result, tests, self.samples, number, unmoved=both).items():
                found |= predicted.metrics(prefix)
        return found

    def claims(self) -> Sequence[Claim]:
        """The published table, or the study's."""
        if self.study == "zeta" and (self.dataset, self.size) == ("mnist", "medium"):
            return peaks({f"ζ = {zeta:g}": accuracy for zeta, accuracy in ZETA_MEDIUM_MNIST.items()})
        return peaks(TABLE[self.dataset, self.size]) if self.study == "table" else []

    def illustrate(self, folder: Path, result: Result, setting: Setting, method: str) -> None:
        """Class probabilities of some test images, and how well all are calibrated; see ``Illustrated``."""
        if self.study == "uncertainty":
            personal_figures.plot_probabilities(result, setting, self.samples, method, folder)
            personal_figures.plot_calibration(result, setting, self.samples, method, folder)
