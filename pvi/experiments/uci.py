"""Logistic regression on UCI tables, ten clients (Ashman et al. 2022, section 5.1 and figure 4)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from pvi import Anderson, Result, schedules, solvers
from pvi.data import SPLIT_A, SPLIT_B, leftover, small_large, train_test, uci
from pvi.diagnostics import heldout_classification
from pvi.experiments.claims import falls_short, reaches
from pvi.experiments.protocol import Claim, Method, Setting

DATASETS: Mapping[str, Callable[[str | None], uci.Dataset]] = {
    "adult": uci.adult,
    "adult.data": lambda data_dir: uci.adult(data_dir, part="train"),
    "bank": uci.bank,
    "credit": uci.credit,
}
EXACT, SYNCHRONOUS, SEQUENTIAL = "global VI, exact", "PVI synchronous", "PVI sequential"
ANDERSON, ASYNCHRONOUS = "PVI synchronous, Anderson", "PVI asynchronous"
SAME, SPLIT, VCL, STREAMING, ADAM = "BCM same", "BCM split", "VCL", "streaming VB", "global VI, Adam"
BATCH = 512
NEAR = 0.003
"""Nats a test row that count as the same predictive performance."""


@dataclass(frozen=True)
class UCI:
    """The options; see :class:`~pvi.experiments.protocol.Experiment`."""

    NAME: ClassVar[str] = "uci"
    QUICK: ClassVar[Mapping[str, Any]] = {"dataset": "credit", "seeds": 2, "rounds": 10, "epochs": 50}

    dataset: str = field(default="adult", metadata={"help": f"The table: {', '.join(DATASETS)}."})
    split: str = field(
        default="B",
        metadata={
            "help": "How unequal the clients are: A (equal), B, or imbalances of size and class such as 0.75,0.95."
        },
    )
    clients: int = field(default=10, metadata={"help": "Clients, half of them small, half large."})
    seeds: int = field(default=5, metadata={"help": "Repetitions: other test rows, another deal."})
    rounds: int = field(default=20, metadata={"help": "Rounds of PVI; sequential: passes."})
    damping: float = field(default=0.2, metadata={"help": "Damping of synchronous and asynchronous PVI."})
    epochs: int = field(default=100, metadata={"help": "Passes over all rows of global VI by mini-batches."})
    rows: int | None = field(default=None, metadata={"help": "Use only so many rows, shuffled."})
    scale: str = field(
        default="training",
        metadata={"help": "Rows that standardise the columns: training, or all (with the test rows, as published)."},
    )

    @property
    def title(self) -> str:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        return f"Logistic regression on {self.dataset}, split {self.split}, {self.clients} clients"

    @property
    def metrics(self) -> tuple[str, ...]:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        return ("log_likelihood", "accuracy", "elbo_gap", "kl", "ece")

    def setting(self, seed: int, data_dir: str | None) -> Setting:
        """The table's rows of a seed, dealt to the clients."""
        if self.dataset not in DATASETS:
            raise ValueError(f"dataset is one of {', '.join(DATASETS)}, not {self.dataset!r}")
        if self.scale not in get_args(Literal["training", "all"]):
            raise ValueError(f"scale is training or all, not {self.scale!r}")
        table = train_test(DATASETS[self.dataset](data_dir), seed=seed, fit_rows=self.scale, rows=self.rows)  # type: ignore[arg-type]
        x, y = table.train
        parts = small_large(y.numpy(), self.clients, **imbalance(self.split), seed=seed)
        names = [f"client {number + 1}" for number in range(self.clients)]
        rest = leftover(parts, len(y))
        notes = list(table.notes)
        if len(rest):
            notes.append(f"{len(rest)} of {len(y)} training rows are with no client: sizes are rounded down.")
        return Setting(
            model="logistic_regression",
            clients={name: (x[part], y[part]) for name, part in zip(names, parts, strict=True)},
            test=table.test,
            parts=dict(zip(names, parts, strict=True)),
            labels=y.long().numpy(),
            notes=tuple(notes),
        )

    def reference(self, setting: Setting) -> Method:
        """Global VI with exact expectations."""
        return Method(EXACT, {"algorithm": "global-vi"})

    def methods(self, setting: Setting) -> Sequence[Method]:
        """PVI's schedules and the baselines."""
        rows = sum(len(y) for _, y in setting.clients.values())
        latency = {name: len(y) / rows for name, (_, y) in setting.clients.items()}
        plain = {"damping": self.damping}
        return (
            Method(SYNCHRONOUS, plain, self.rounds),
            Method(ANDERSON, {"damping": 0.5, "acceleration": Anderson(memory=5)}, self.rounds),
            Method(SEQUENTIAL, {"schedule": "sequential", "damping": 1.0}, self.rounds),
            Method(ASYNCHRONOUS, {"schedule": schedules.Asynchronous(latency=latency), **plain}, self.rounds),
            Method(SAME, {"algorithm": "bcm-same"}),
            Method(SPLIT, {"algorithm": "bcm-split"}),
            Method(VCL, {"algorithm": "vcl"}),
            Method(STREAMING, {"algorithm": "streaming-vb"}, self.rounds),
            by_mini_batches(rows, self.epochs),
        )

    def measure(self, result: Result, setting: Setting) -> dict[str, float]:
        """Of the test rows, by quadrature."""
        return heldout_classification(result, setting.test)

    def claims(self) -> Sequence[Claim]:
        """Section 5.1."""
        metric = "log_likelihood"
        same = "sequential and synchronous PVI converge to the performance of global VI's optimum"
        found = [Claim(same, reaches(name, EXACT, metric, NEAR)) for name in (SEQUENTIAL, SYNCHRONOUS)]
        if self.split != "A":
            short = "with unequal clients BCM and VCL perform comparatively poorly"
            found += [Claim(short, falls_short(name, EXACT, metric, NEAR)) for name in (SAME, SPLIT, VCL)]
        if self.dataset == "credit":
            text = "streaming VB over-counts: its performance degrades on credit"
            found.append(Claim(text, falls_short(STREAMING, EXACT, metric, NEAR)))
        return found


def by_mini_batches(rows: int, epochs: int) -> Method:
    """Global VI by Adam; a round is ten epochs, a message a mini-batch each way."""
    passes = min(10, epochs)
    steps = max(1, round(passes * rows / min(rows, BATCH)))
    solver = solvers.SVI(steps=steps, batch_size=BATCH, learning_rate=0.01)
    return Method(ADAM, {"algorithm": "global-vi", "solver": solver}, epochs // passes, messages=2 * steps)


def imbalance(split: str) -> Mapping[str, float]:
    """A split's imbalances; raises ``ValueError`` for what is neither a letter nor two numbers."""
    known = {"A": SPLIT_A, "B": SPLIT_B}
    if split in known:
        return known[split]
    try:
        size, of_class = (float(part) for part in split.split(","))
    except ValueError as error:
        raise ValueError(
            f"split is A, B, or two numbers such as 0.75,0.95 (of size, of class), not {split!r}"
        ) from error
    return {"size_imbalance": size, "class_imbalance": of_class}
