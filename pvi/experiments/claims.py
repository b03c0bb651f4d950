"""What papers say of methods, as questions to a table of curves."""

from collections.abc import Callable

import pandas as pd

from pvi.experiments.metrics import METRICS
from pvi.experiments.protocol import Verdict
from pvi.experiments.summary import difference


def reaches(method: str, other: str, metric: str, tolerance: float) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends at most ``tolerance`` worse than ``other``, in the mean over the seeds."""
    return lambda curves: _compare(curves, method, other, metric, lambda better: better >= -tolerance)


def falls_short(method: str, other: str, metric: str, tolerance: float) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends more than ``tolerance`` worse than ``other``, in the mean over the seeds."""
    return lambda curves: _compare(curves, method, other, metric, lambda better: better < -tolerance)


def _compare(curves: pd.DataFrame, method: str, other: str, metric: str, holds: Callable[[float], bool]) -> Verdict:
    found, shown = difference(curves, method, other, metric), METRICS[metric]
    if found is None:
        return Verdict(None, "")
    better = found.mean if shown.higher_is_better else -found.mean
    text = f"{method}: {shown.label} {found.mean:+.{shown.digits}f}"
    if found.n > 1:
        text += f" ± {found.half:.{shown.digits}f}"
    return Verdict(holds(better), f"{text} against {other}")
