"""Mortality in intensive care from 714 features (Ashman et al. 2022, section 5.2), on MIMIC-III or on open stays."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch

from pvi import Result, solvers
from pvi.data import icu, k_means
from pvi.diagnostics import heldout_classification
from pvi.experiments.claims import at_least, reaches
from pvi.experiments.protocol import Claim, Method, Setting
from pvi.models import bayesian_mlp, logistic_regression

SOURCES: Mapping[str, Callable[[str | None], icu.Stays]] = {
    "icu2012": icu.physionet2012,
    "mimic3": lambda data_dir: icu.mimic3_benchmark(benchmark_folder(data_dir)),
}
POOLED, SYNCHRONOUS, SEQUENTIAL = "global VI", "PVI synchronous", "PVI sequential"
SAME, SPLIT, VCL, STREAMING = "BCM same", "BCM split", "VCL", "streaming VB"
NEAR = {"logistic": {"auroc": 0.005, "log_likelihood": 0.003}, "bnn": {"auroc": 0.01, "log_likelihood": 0.01}}
"""Differences that count as the same performance."""


@dataclass(frozen=True)
class ICU:
    """The options; see :class:`~pvi.experiments.protocol.Experiment`."""

    NAME: ClassVar[str] = "icu"
    QUICK: ClassVar[Mapping[str, Any]] = {"seeds": 1, "rounds": 10, "steps": 50}

    source: str = field(
        default="icu2012",
        metadata={"help": "icu2012 (PhysioNet 2012, open) or mimic3 (the MIMIC-III benchmark's folder)."},
    )
    model: str = field(default="logistic", metadata={"help": "logistic, or bnn (two layers of 50)."})
    clients: str = field(
        default="k-means", metadata={"help": "k-means (five clusters of similar stays) or unit (the kinds of ICU)."}
    )
    seeds: int = field(default=5, metadata={"help": "Repetitions: other held-out stays, other clusters."})
    rounds: int = field(default=20, metadata={"help": "Rounds of PVI; sequential: passes."})
    damping: float = field(default=0.4, metadata={"help": "Damping of synchronous PVI."})
    steps: int = field(default=200, metadata={"help": "bnn: gradient steps of a client at each visit."})
    prior_scale: float | None = field(
        default=None,
        metadata={"help": "Prior deviation of each weight; if not given 0.05 (logistic) or 1 (bnn)."},
    )
    stays: int | None = field(default=None, metadata={"help": "Use only the first so many stays."})
    scaling: str = field(
        default="federation",
        metadata={"help": "Standardise by merged statistics (federation) or by the client's own (client)."},
    )

    @property
    def title(self) -> str:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        kind = {"logistic": "logistic regression", "bnn": "Bayesian network of two layers of 50"}[self.model]
        return f"Mortality in intensive care ({self.source}), {kind}, clients by {self.clients}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """See :class:`~pvi.experiments.protocol.Experiment`."""
        return ("auroc", "auprc", "log_likelihood", "ece", "elbo", "elbo_gap", "kl", "brier")

    def __post_init__(self) -> None:
        for name, known in (("source", SOURCES), ("model", NEAR), ("clients", ("k-means", "unit")),
                            ("scaling", get_args(icu.Scaling))):  # fmt: skip
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {' or '.join(known)}, not {getattr(self, name)!r}")
        if self.prior_scale is not None and not self.prior_scale > 0:
            raise ValueError(f"prior_scale must be positive, not {self.prior_scale}")

    def setting(self, seed: int, data_dir: str | None) -> Setting:
        """The stays of a seed: a fifth of each client's held out."""
        stays = first(SOURCES[self.source](data_dir), self.stays)
        clients: Any = None
        if self.clients == "k-means":
            inputs = icu.encode(stays.features, icu.statistics(stays.features))
            clients = {f"cluster {k + 1}": rows for k, rows in enumerate(k_means(inputs, 5, seed=seed))}
        tables = icu.stay_tables(stays, clients, seed=seed, scaling=self.scaling)  # type: ignore[arg-type]
        dtype = torch.float64 if self.model == "logistic" else torch.float32
        pairs = {name: (x.to(dtype), y.to(dtype)) for name, (x, y) in tables.items()}
        held_out = [torch.cat(parts).to(dtype) for parts in zip(*tables.holdout.values(), strict=True)]
        program, guide = self._program(seed)
        if not len(held_out[1]):
            raise ValueError(f"of {len(stays)} stays none is held out: use more")
        return Setting(
            model=program,
            guide=guide,
            clients=pairs,
            test=(held_out[0], held_out[1]),
            parts={name: np.concatenate(rows) for name, rows in tables.rows.items()},
            labels=np.where(stays.died == 1, "died", "survived"),
            notes=tables.notes,
        )

    def _program(self, seed: int) -> tuple[Callable[..., Any], Any]:
        if self.model == "logistic":
            # 714 correlated columns overfit under the paper's N(0, 1); the bias must be free: one stay in seven ends in
            # death.
            scale = 0.05 if self.prior_scale is None else self.prior_scale
            return partial(logistic_regression.model, prior_scale=scale, bias_scale=1.0), None
        scale = 1.0 if self.prior_scale is None else self.prior_scale
        program = partial(bayesian_mlp.model, hidden=50, depth=2, prior_scale=scale)
        return program, bayesian_mlp.mean_field_guide(program, seed=seed)

    def reference(self, setting: Setting) -> Method | None:
        """Global VI with exact expectations, for logistic regression."""
        return Method(POOLED, {"algorithm": "global-vi"}) if self.model == "logistic" else None

    def methods(self, setting: Setting) -> Sequence[Method]:
        """PVI's schedules and the baselines; for the network global VI with as many gradient steps."""
        shared: dict[str, Any] = {} if self.model == "logistic" else self._stochastic(self.steps)
        # Undamped, noisy solves of the network bring q to the edge of propriety.
        rho = 1.0 if self.model == "logistic" else 0.5
        found = [
            Method(SYNCHRONOUS, {"damping": self.damping, **shared}, self.rounds),
            Method(SEQUENTIAL, {"schedule": "sequential", "damping": rho, **shared}, self.rounds),
            Method(SAME, {"algorithm": "bcm-same", **shared}),
            Method(SPLIT, {"algorithm": "bcm-split", **shared}),
            Method(VCL, {"algorithm": "vcl", **shared}),
            Method(STREAMING, {"algorithm": "streaming-vb", **shared}, self.rounds),
        ]
        if self.model == "bnn":
            each = self.steps * len(setting.clients)
            pooled = Method(
                POOLED, {"algorithm": "global-vi", **self._stochastic(each)}, self.rounds, messages=2 * each
            )
            found.insert(0, pooled)
        return found

    def _stochastic(self, steps: int) -> dict[str, Any]:
        solver = solvers.SVI(
            steps=steps, batch_size=256, learning_rate=5e-3, num_particles=1, plain=True, local_reparameterisation=True
        )
        return {"solver": solver, "elbo_samples": 10}

    def measure(self, result: Result, setting: Setting) -> dict[str, float]:
        """Of the held-out stays."""
        return heldout_classification(result, setting.test)

    def claims(self) -> Sequence[Claim]:
        """Section 5.2."""
        text = "both PVI methods converge towards the performance of global VI"
        found = [
            Claim(text, reaches(name, POOLED, metric, tolerance))
            for name in (SYNCHRONOUS, SEQUENTIAL)
            for metric, tolerance in NEAR[self.model].items()
        ]
        if self.source == "icu2012" and self.stays is None:
            text = "published simple models reach an AUROC of about 0.80 to 0.85 on these stays"
            found += [Claim(text, at_least(name, "auroc", 0.8)) for name in (SYNCHRONOUS, SEQUENTIAL)]
        return found


def benchmark_folder(data_dir: str | None) -> Path:
    """The benchmark's ``in-hospital-mortality``: the folder named (else PVI_DATA), or the one of this name in it.

    Raises ``ValueError`` where neither names one.
    """
    named = data_dir or os.environ.get("PVI_DATA")
    if not named:
        raise ValueError("say with --data-dir (or PVI_DATA) where the MIMIC-III benchmark's in-hospital-mortality is")
    inside = Path(named) / "in-hospital-mortality"
    return inside if inside.is_dir() else Path(named)


def first(stays: icu.Stays, number: int | None) -> icu.Stays:
    """The first so many stays; raises ``ValueError`` where there are not so many."""
    if number is None:
        return stays
    if not 0 < number <= len(stays):
        raise ValueError(f"stays={number}: {stays.name} has {len(stays)}")
    return replace(
        stays,
        records=stays.records[:number],
        features=stays.features[:number],
        died=stays.died[:number],
        unit=stays.unit[:number],
        notes=(*stays.notes, f"Only the first {number} of {len(stays)} stays are used."),
    )
