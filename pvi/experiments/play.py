"""Play an experiment: every seed, every method, a line of the curves a round."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from pvi import Result, fit_rounds
from pvi.experiments.protocol import Experiment, Method, Setting
from pvi.history import Round

KEYS = ("seed", "method", "round")


class Progress(NamedTuple):
    """Where a run is: the seed, the method and its round of how many, and the line that was measured last.

    ``elbo_name`` is what its "elbo" is called, see :attr:`pvi.Result.elbo_name`.
    """

    seed: int
    method: str
    round: int
    rounds: int
    measured: dict[str, Any]
    elbo_name: str = "ELBO"


Report = Callable[[Progress], None]


class Curves(NamedTuple):
    """A part of the curves: those of one method and seed, the last result, and the problem it solves."""

    seed: int
    method: str
    records: list[dict[str, Any]]
    result: Result
    setting: Setting


def play(
    experiment: Experiment,
    data_dir: str | Path | None = None,
    only: Collection[str] = (),
    done: Collection[tuple[int, str]] = (),
    report: Report = lambda progress: None,
    device: str = "cpu",
    threads: int = 1,
    seeds: Sequence[int] | None = None,
    begun: Callable[[int, Setting], None] = lambda seed, setting: None,
) -> Iterator[Curves]:
    """The curves of each method at each seed, as they come.

    ``only`` these methods (all where empty), without those ``done`` (seed, method). The reference is always played,
    since the others are measured against it. ``begun`` hears of each seed's problem.

    Each record has ``seed``, ``method``, ``round``, ``messages`` so far (one client's to the server or back),
    ``seconds`` (of the rounds, without measuring), ``elbo`` and ``elbo_standard_error`` (nats), with a reference
    ``elbo_gap`` = F(q*) - F(q) and ``kl`` = KL(q, q*) (nats), and where the round is measured what
    ``experiment.measure`` says.

    Raises ``ValueError`` for a method that the experiment does not have.
    """
    for seed in range(experiment.seeds) if seeds is None else seeds:
        setting = experiment.setting(seed, None if data_dir is None else str(data_dir))
        reference, methods = experiment.reference(setting), list(experiment.methods(setting))
        check_methods(only, [*([reference] if reference else []), *methods])
        begun(seed, setting)
        best: Result | None = None
        wanted = [method for method in methods if not only or method.name in only]
        left = [method for method in wanted if (seed, method.name) not in done]
        if reference is not None and (left or (seed, reference.name) not in done):
            curves = trace(experiment, setting, reference, seed, None, report, device, threads)
            best = curves.result
            if (seed, reference.name) not in done:
                yield curves
        for method in left:
            yield trace(experiment, setting, method, seed, best, report, device, threads)


def trace(
    experiment: Experiment,
    setting: Setting,
    method: Method,
    seed: int,
    best: Result | None,
    report: Report,
    device: str,
    threads: int,
) -> Curves:
    """One method's rounds, measured."""
    records: list[dict[str, Any]] = []
    messages, seconds, clock = 0, 0.0, time.perf_counter()
    own = {"model": setting.model, "guide": setting.guide, "clients": setting.clients, **method.options}
    options = {"seed": seed, "device": device, "threads": threads, **own}
    for result in fit_rounds(rounds=method.rounds, **options):
        seconds += time.perf_counter() - clock
        last = result.history[-1]
        messages += last.communications if method.messages is None else method.messages
        records.append(_record(method, seed, last, messages, seconds))
        if best is not None:
            records[-1] |= {"elbo_gap": best.elbo - last.elbo, "kl": float(result.posterior.kl(best.posterior))}
        due = last.number % method.every == 0 or last.number == method.rounds
        if due and math.isfinite(last.elbo):  # of a diverged q there is nothing to predict
            records[-1] |= experiment.measure(result, setting)
        report(Progress(seed, method.name, last.number, method.rounds, records[-1], result.elbo_name))
        clock = time.perf_counter()
    return Curves(seed, method.name, records, result, setting)


def check_methods(names: Collection[str], methods: Sequence[Method]) -> None:
    """Raises ``ValueError`` for a name that no method has."""
    known = [method.name for method in methods]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no method {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, known))}")


def frame(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Records as a table, the keys first."""
    table = pd.DataFrame.from_records(list(records))
    return table[[*KEYS, *[name for name in table.columns if name not in KEYS]]] if len(table) else table


def _record(method: Method, seed: int, last: Round, messages: int, seconds: float) -> dict[str, Any]:
    return {
        "seed": seed,
        "method": method.name,
        "round": last.number,
        "messages": messages,
        "seconds": seconds,
        "elbo": last.elbo,
        "elbo_standard_error": last.elbo_standard_error,
        "rejected": len(last.rejected),
        "step_fraction": last.step_fraction,
    }
