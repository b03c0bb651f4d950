"""The table of an experiment: every method's last round, over the seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pvi.diagnostics import mean_interval
from pvi.experiments.metrics import METRICS


class Interval(NamedTuple):
    """A mean over n seeds and its 95 % interval (Student's t); without width for one seed."""

    mean: float
    half: float
    n: int

    def text(self, digits: int, sign: str = "") -> str:
        """``0.852 ± 0.003``; empty where nothing was measured (NaN), without interval where a value is infinite."""
        if np.isnan(self.mean):
            return ""
        half = f" ± {self.half:.{digits}f}" if self.n > 1 and np.isfinite(self.half) else ""
        return f"{self.mean:{sign},.{digits}f}{half}"


def interval(values: Sequence[float]) -> Interval:
    """The mean of values of different seeds; not finite ones are kept, so that they show."""
    found = np.asarray(values, dtype=float)
    if len(found) < 2:
        return Interval(float(found.mean()), 0.0, len(found))
    if not np.isfinite(found).all():
        return Interval(float(found.mean()), np.nan, len(found))
    ends = mean_interval(found)
    return Interval(ends.mean, ends.upper - ends.mean, len(found))


def last_rounds(curves: pd.DataFrame) -> pd.DataFrame:
    """Each method's last round at each seed, methods in the order of the curves; with the best rounds of the metrics
    that ask for them.
    """
    groups = curves.groupby(["method", "seed"], sort=False)
    found = curves.loc[groups["round"].idxmax()]
    peaks = {name: metric.peak_of for name, metric in METRICS.items() if metric.peak_of in curves}
    for name, column in peaks.items():
        best = groups[column].max() if METRICS[name].higher_is_better else groups[column].min()
        keys = pd.MultiIndex.from_frame(found[["method", "seed"]])
        found = found.assign(**{name: best.reindex(keys).to_numpy()})
    return found


def values(curves: pd.DataFrame, method: str, metric: str) -> pd.Series:
    """A metric's last value by seed; empty where the method was not run."""
    found = last_rounds(curves[curves["method"] == method]) if len(curves) else curves
    return found.set_index("seed")[metric] if len(found) and metric in found else pd.Series(dtype=float)


def difference(curves: pd.DataFrame, method: str, other: str, metric: str) -> Interval | None:
    """Method minus other, seed by seed, at their last rounds; ``None`` where one was not run or measured.

    Not finite where one of them is not at some seed.
    """
    one, two = values(curves, method, metric), values(curves, other, metric)
    seeds = one.index.intersection(two.index)
    if not (one[seeds].notna().any() and two[seeds].notna().any()):
        return None
    with np.errstate(invalid="ignore"):  # infinity less infinity
        return interval((one[seeds] - two[seeds]).tolist())


def differences(curves: pd.DataFrame, baseline: str, metrics: Sequence[str]) -> pd.DataFrame:
    """One row a method, as text: its metrics less the baseline's at the same seeds, with intervals.

    Test rows differ between the seeds, and the metrics with them: what methods do to the same rows says more. Metrics
    that are differences already, or that nobody measured, are left out; empty where the baseline was not run.
    """
    rows: dict[str, dict[str, str]] = {}
    shown = [name for name in metrics if name not in ("elbo_gap", "kl") and name in last_rounds(curves)]
    for method in curves["method"].unique():
        found = {name: difference(curves, method, baseline, name) for name in shown}
        if method != baseline and any(found.values()):
            texts = {METRICS[name].short: "" if one is None else one.text(METRICS[name].digits, sign="+")
                     for name, one in found.items()}  # fmt: skip
            rows[str(method)] = texts
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(f"less {baseline}")


def numbers(curves: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The same table as numbers: each metric's mean over the seeds, and half its interval as ``metric_half``."""
    rows = {}
    for method, found in last_rounds(curves).groupby("method", sort=False):
        row = {"seeds": len(found), **{name: found[name].mean() for name in ("round", "messages", "seconds")}}
        for name in metrics:
            over_seeds = interval(found[name].tolist() if name in found else [np.nan])
            row |= {name: over_seeds.mean, f"{name}_half": over_seeds.half if over_seeds.n > 1 else np.nan}
        rows[str(method)] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")


def table(curves: pd.DataFrame, metrics: Sequence[str], *, intervals: bool = True) -> pd.DataFrame:
    """One row a method, as text: rounds, messages, seconds, and the metrics' means, with intervals over the seeds."""
    rows = {}
    for method, found in last_rounds(curves).groupby("method", sort=False):
        row = {
            "seeds": str(len(found)),
            "rounds": f"{found['round'].mean():g}",
            "messages": f"{found['messages'].mean():,.0f}",
        }
        for name in metrics:
            shown = METRICS[name]
            column = found[name] if name in found else pd.Series([np.nan])
            over_seeds = interval(column.tolist())
            row[shown.short] = (
                over_seeds.text(shown.digits) if intervals else over_seeds._replace(n=1).text(shown.digits)
            )
        rows[str(method)] = row | {"seconds": f"{found['seconds'].mean():,.1f}"}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
