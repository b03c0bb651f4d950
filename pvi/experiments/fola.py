"""FOLA's experiments (Liu et al. 2021, section IV): online Laplace factors beside FedAvg on unlike clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from pvi import Result
from pvi.executors import Vectorised
from pvi.experiments import fola_data, fola_figures, fola_methods, published_fola
from pvi.experiments.fola_accuracy import global_and_local, ridge
from pvi.experiments.fola_optimum import Optimum, distances, optimum
from pvi.experiments.mnist import SIDE
from pvi.experiments.protocol import Claim, Method, Pair, Setting
from pvi.experiments.skewed_images import CLASSES, SETS
from pvi.models import bayesian_mlp, small_cnn

STUDIES = ("table", "covariance", "correlation")
HIDDEN = (300, 100)
ROUNDS = {"table": 20, "covariance": 10, "correlation": 15}
EPOCHS = {"table": 10, "covariance": 1, "correlation": 1}
BATCH = {"table": 32, "covariance": 200, "correlation": 200}


@dataclass(frozen=True)
class FOLAStudy:
    """The options; see :class:`~pvi.experiments.protocol.Experiment`."""

    NAME: ClassVar[str] = "fola"
    QUICK: ClassVar[Mapping[str, Any]] = {
        "train": 2_000, "test": 2_000, "pixels": 14, "seeds": 2, "rounds": 5, "compile": False,
    }  # fmt: skip

    study: str = field(
        default="table",
        metadata={"help": "table (FOLA beside its rivals), covariance (full, e-full, diagonal) or correlation."},
    )
    dataset: str = field(default="mnist", metadata={"help": f"{', '.join(SETS)}."})
    clients: int = field(default=20, metadata={"help": "Clients of the table; the other studies have two."})
    alpha: float = field(default=0.01, metadata={"help": "Concentration of the clients' labels (table)."})
    alphas: str = field(default="0.1,1,10", metadata={"help": "Concentrations of the study of correlations."})
    epochs: int | None = field(default=None, metadata={"help": "Local epochs; if not given 10 (table) or 1."})
    batch: int | None = field(default=None, metadata={"help": "Rows of a step; if not given 32 (table) or 200."})
    rate: float = field(default=0.01, metadata={"help": "Learning rate of everybody's SGD."})
    rounds: int | None = field(
        default=None, metadata={"help": "Rounds; if not given 20 (table), 10 (covariance) or 15 (correlation)."}
    )
    seeds: int = field(default=5, metadata={"help": "Repetitions: another deal, another start."})
    train: int | None = field(default=None, metadata={"help": "Training images, of all classes alike; else all."})
    test: int | None = field(default=None, metadata={"help": "Test images, of all classes alike; else all."})
    pixels: int = field(default=28, metadata={"help": "Pixels of a side, 28 or 14 (squares averaged; not cifar10)."})
    prior_weight: float = field(default=1.0, metadata={"help": "FOLA's λ."})
    prior_precision: float | None = field(
        default=None, metadata={"help": "Precision of FOLA's first prior; if not given that of the model, 1."}
    )
    proximal: float = field(default=0.1, metadata={"help": "FedProx's pull to the global model."})
    penalty: float = field(default=1.0, metadata={"help": "FedCurv's λ."})
    points: int = field(default=51, metadata={"help": "Points of π_1 from 0 to 1 (covariance)."})
    every: int = field(default=1, metadata={"help": "Measure after so many rounds, and at the end."})
    compile: bool = field(
        default=True, metadata={"help": "Compile the clients' step: half a minute once, then faster."}
    )

    def __post_init__(self) -> None:
        for name, known in (("study", STUDIES), ("dataset", tuple(SETS)), ("pixels", (SIDE, SIDE // 2))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {' or '.join(map(str, known))}, not {getattr(self, name)!r}")
        for name in ("clients", "epochs", "batch", "rounds", "train", "test", "every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.points < 2:
            raise ValueError(f"points must be at least 2, the ends of [0, 1], not {self.points}")
        if self.study != "table" and self.dataset not in fola_data.GREY:
            raise ValueError(f"the study {self.study} is of softmax regression on {' or '.join(fola_data.GREY)}")
        if not self.alpha > 0 or not all(alpha > 0 for alpha in self.concentrations):
            raise ValueError(f"alpha and alphas must be above 0, not {self.alpha} and {self.alphas}")

    @property
    def concentrations(self) -> list[float]:
        """Those of the study of correlations."""
        try:
            return list(dict.fromkeys(float(word) for word in self.alphas.split(",")))
        except ValueError as error:
            raise ValueError(f"alphas are numbers with commas between them, not {self.alphas!r}") from error

    @property
    def title(self) -> str:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        if self.study == "covariance":
            return f"FOLA's covariances on {self.dataset}: softmax regression, two clients of five labels each"
        if self.study == "correlation":
            return f"FOLA's errors and accuracies on {self.dataset}: softmax regression, two clients"
        return f"FOLA on {self.dataset}, {self.clients} clients with labels from Dir({self.alpha:g})"

    @property
    def metrics(self) -> tuple[str, ...]:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        return ("ga", "la", "ae", "lf") if self.study == "correlation" else ("ga", "la", "ga_peak", "la_peak")

    def setting(self, seed: int, data_dir: str | None) -> Setting:
        """The images, dealt to the clients; for correlations the optimum of all of them, and a deal for every α."""
        found = fola_data.read(self.dataset, data_dir, self.train, self.test, self.pixels, seed)
        y = found.train.y.numpy()
        notes = [*found.notes, published_fola.UNSTATED]
        notes += [published_fola.SAMPLING] if self.study == "table" else []
        if self.study == "covariance":
            deals = {0.0: fola_data.half_parts(y)}
        else:
            number, alphas = (self.clients, [self.alpha]) if self.study == "table" else (2, self.concentrations)
            deals = {alpha: fola_data.dirichlet_parts(y, number, alpha, seed) for alpha in alphas}
            notes += [fola_data.dealing_note(y, parts, alpha) for alpha, parts in deals.items() if seed == 0]
        by_alpha = {alpha: fola_data.clients_of(found.train, parts) for alpha, parts in deals.items()}
        program, first = self.network(), next(iter(deals))
        guide = bayesian_mlp.mean_field_guide(program, loc_range="fan-in", seed=seed)
        best = optimum((found.train.x, found.train.y), CLASSES) if self.study == "correlation" else None
        return Dealt(
            model=program,
            guide=guide if self.study == "table" else None,
            clients=by_alpha[first],
            test=found.test_rows,
            parts=deals[first],
            labels=y,
            notes=tuple(notes),
            by_alpha=by_alpha,
            optimum=best,
        )

    def network(self) -> Any:
        """784-300-100-10, two convolutions and a hidden layer for photos, or softmax regression 784-10."""
        if self.study != "table":
            return partial(bayesian_mlp.model, depth=0, classes=CLASSES)
        if self.dataset == "cifar10":
            return partial(small_cnn.model, classes=CLASSES)
        return partial(bayesian_mlp.model, hidden=HIDDEN, classes=CLASSES)

    def reference(self, setting: Setting) -> None:
        """Nothing is exact here."""

    @property
    def length(self) -> int:
        """Rounds of every method."""
        return ROUNDS[self.study] if self.rounds is None else self.rounds

    def methods(self, setting: Setting) -> Sequence[Method]:
        """Those of the study."""
        steps: dict[str, Any] = {
            "epochs": EPOCHS[self.study] if self.epochs is None else self.epochs,
            "batch_size": BATCH[self.study] if self.batch is None else self.batch,
            "learning_rate": self.rate,
        }
        own: dict[str, Any] = {"prior_weight": self.prior_weight, "prior_precision": self.prior_precision,
                               "keep_prior": False}  # fmt: skip
        run = {"executor": Vectorised(compile="auto" if self.compile else False), "elbo_samples": 2}
        common: dict[str, Any] = {"own": own, "common": steps, "run": run, "rounds": self.length, "every": self.every}
        if self.study == "covariance":
            return fola_methods.covariance_methods(**common)
        if self.study == "correlation":
            assert isinstance(setting, Dealt)
            return fola_methods.correlation_methods(**common, clients=setting.by_alpha)
        rows = min(len(y) for _, y in setting.clients.values())
        return fola_methods.table_methods(**common, proximal=self.proximal, penalty=self.penalty, rows=rows)

    def measure(self, result: Result, setting: Setting) -> dict[str, float]:
        """GA and LA; between two clients after the first and the last round; distances to the optimum."""
        found = global_and_local(result, setting.clients, setting.test)
        assert isinstance(setting, Dealt)
        if self.study == "covariance" and result.history[-1].number in (1, self.length):
            found |= ridge(result, list(setting.clients), setting.test, self.points)
        if setting.optimum is not None:
            found |= distances(result, setting.optimum, setting.clients)
        return found

    def claims(self) -> Sequence[Claim]:
        """Those of the study."""
        if self.study == "covariance":
            return published_fola.covariance_claims()
        if self.study == "correlation":
            return published_fola.correlation_claims(self.concentrations)
        return published_fola.table_claims(self.dataset, self.alpha)

    def summarise(self, folder: Path, curves: pd.DataFrame) -> None:
        """The pictures that need all methods, and their numbers; see ``Summarised``."""
        if self.study == "covariance":
            fola_figures.plot_ridge(curves, folder)
        if self.study == "correlation":
            fola_figures.plot_correlation(curves, folder)


@dataclass(frozen=True)
class Dealt(Setting):
    """A problem with the clients at every α, and for correlations the optimum of all rows."""

    by_alpha: Mapping[float, Mapping[str, Pair]] = field(default_factory=dict)
    optimum: Optimum | None = None
