"""What an experiment is: a short declaration of data, methods and claims over the public API."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import pandas as pd
from torch import Tensor

from pvi import Result
from pvi.damping import resolve_damping

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Method:
    """One line of the table: a name, the options of :func:`pvi.fit`, and how many rounds.

    ``options`` may name a ``model``, a ``guide`` and ``clients`` of the method's own in the place of the setting's.
    ``messages`` a round, where the run's own count is not the federation's: global VI by mini-batches would need two
    for every gradient (Ashman et al. 2022, theorem 3.1). ``every`` so many rounds the test set is predicted, and after
    the last. Raises ``ValueError`` for ``rounds`` and ``every`` below 1 and a damping outside (0, 1]: a mistake in the
    last method must not show only after hours of the others.
    """

    name: str
    options: Mapping[str, Any]
    rounds: int = 1
    messages: int | None = None
    every: int = 1

    def __post_init__(self) -> None:
        for name in ("rounds", "every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{self.name}: {name} must be at least 1, not {getattr(self, name)}")
        if "damping" in self.options:
            resolve_damping(self.options["damping"])


@dataclass(frozen=True)
class Setting:
    """One seed's problem: the program and its guide, each client's training rows, and the test rows.

    ``parts`` with ``labels`` are the partition as row numbers, for its picture; ``notes`` sentences for the user.
    ``test_by_client`` are the test rows of each client where they have their own: ``test`` end to end.
    """

    model: Callable[..., Any] | str
    clients: Mapping[str, Pair]
    test: Pair
    guide: Any = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    labels: Any = ()
    notes: tuple[str, ...] = ()
    seed: int = 0
    test_by_client: Mapping[str, Pair] = field(default_factory=dict)


class Verdict(NamedTuple):
    """Whether a claim holds in a table, ``None`` where its methods were not run, and the numbers.

    Not ``clear`` where the interval over the seeds allows both.
    """

    holds: bool | None
    measured: str
    clear: bool = True


class Claim(NamedTuple):
    """Something that the paper says, in words, and how to look it up in the curves' table."""

    published: str
    verdict: Callable[[pd.DataFrame], Verdict]


class Experiment(Protocol):
    """A frozen dataclass whose fields are the experiment's options; their defaults are the full size.

    ``QUICK`` replaces some of them for a run of minutes. A field's ``metadata["help"]`` is its line on the command
    line. ``metrics`` are the columns that the table and the curves show, the most telling one first.
    """

    NAME: ClassVar[str]
    QUICK: ClassVar[Mapping[str, Any]]

    @property
    def title(self) -> str:
        """One line: what is compared on what."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names out of :data:`pvi.experiments.metrics.METRICS`."""

    @property
    def seeds(self) -> int:
        """Repetitions; seeds count from 0."""

    def setting(self, seed: int, data_dir: str | None) -> Setting:
        """The problem of a seed; raises ``ValueError`` for options and data that do not go together."""

    def reference(self, setting: Setting) -> Method | None:
        """The method whose posterior is the optimum: gaps and divergences are to it. ``None`` where none is exact."""

    def methods(self, setting: Setting) -> Sequence[Method]:
        """The other lines of the table."""

    def measure(self, result: Result, setting: Setting) -> dict[str, float]:
        """What the test rows say."""

    def claims(self) -> Sequence[Claim]:
        """What the paper says of these methods."""


@runtime_checkable
class Illustrated(Protocol):
    """An experiment with pictures of its own."""

    def illustrate(self, folder: Path, result: Result, setting: Setting, method: str) -> None:
        """Draw what a method came to at its end at seed 0, into files ``picture-*.png``."""


@runtime_checkable
class Summarised(Protocol):
    """An experiment with pictures of all its methods together."""

    def summarise(self, folder: Path, curves: pd.DataFrame) -> None:
        """Draw what the curves say into files ``picture-*.png``, with their numbers as ``picture-*.csv``."""
