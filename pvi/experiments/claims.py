"""What papers say of methods, as questions to a table of curves."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from pvi.experiments.metrics import METRICS
from pvi.experiments.protocol import Claim, Verdict
from pvi.experiments.summary import difference, interval, values


def answer(verdict: Verdict) -> str:
    """A verdict in words."""
    if verdict.holds is None:
        return "not run"
    return ("yes" if verdict.holds else "no") + ("" if verdict.clear else ", not clearly")


def answered(claims: Sequence[Claim], curves: pd.DataFrame) -> dict[str, list[Verdict]]:
    """The verdicts on each sentence, those on methods that were not run left out."""
    found: dict[str, list[Verdict]] = {}
    for claim in claims:
        verdict = claim.verdict(curves)
        if verdict.holds is not None:
            found.setdefault(claim.published, []).append(verdict)
    return found


def reaches(method: str, other: str, metric: str, tolerance: float) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends at most ``tolerance`` worse than ``other``, in the mean over the seeds."""
    return lambda curves: _compare(curves, method, other, metric, tolerance, within=True)


def falls_short(method: str, other: str, metric: str, tolerance: float) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends more than ``tolerance`` worse than ``other``, in the mean over the seeds."""
    return lambda curves: _compare(curves, method, other, metric, tolerance, within=False)


def matches(
    method: str, metric: str, value: float, tolerance: float, seed: int = 0
) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends within ``tolerance`` of a known ``value``, at one seed."""

    def verdict(curves: pd.DataFrame) -> Verdict:
        found = values(curves, method, metric).get(seed, np.nan)
        if np.isnan(found):
            return Verdict(None, "")
        shown = METRICS[metric]
        said = f"{method}: {shown.short} {found:,.{shown.digits}f} (seed {seed})"
        return Verdict(bool(abs(found - value) <= tolerance), said)

    return verdict


def at_most(method: str, metric: str, bound: float, after: int, seed: int = 0) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` has at most ``bound`` after so many rounds, at one seed."""

    def verdict(curves: pd.DataFrame) -> Verdict:
        chosen = curves[(curves["method"] == method) & (curves["seed"] == seed) & (curves["round"] == after)]
        if metric not in chosen or not chosen[metric].notna().any():
            return Verdict(None, "")
        found, shown = float(chosen[metric].iloc[0]), METRICS[metric]
        said = f"{method}: {shown.short} {found:.{shown.digits}f} after {after} rounds (seed {seed})"
        return Verdict(found <= bound, said)

    return verdict


def at_least(method: str, metric: str, bound: float) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends at no less than ``bound``, in the mean over the seeds."""

    def verdict(curves: pd.DataFrame) -> Verdict:
        found = values(curves, method, metric)
        if not found.notna().any():
            return Verdict(None, "")
        over_seeds, shown = interval(found.tolist()), METRICS[metric]
        return Verdict(over_seeds.mean >= bound, f"{method}: {shown.short} {over_seeds.text(shown.digits)}")

    return verdict


def within(method: str, metric: str, value: float, tolerance: float) -> Callable[[pd.DataFrame], Verdict]:
    """``method`` ends within ``tolerance`` of a published ``value``, in the mean over the seeds."""

    def verdict(curves: pd.DataFrame) -> Verdict:
        found = values(curves, method, metric)
        if not found.notna().any():
            return Verdict(None, "")
        over_seeds, shown = interval(found.tolist()), METRICS[metric]
        away = over_seeds.mean - value
        said = f"{method}: {shown.short} {over_seeds.text(shown.digits)}, {away:+.{shown.digits}f}"
        return Verdict(bool(abs(away) <= tolerance), f"{said} (tolerance {tolerance:g})")

    return verdict


def _compare(curves: pd.DataFrame, method: str, other: str, metric: str, tolerance: float, within: bool) -> Verdict:
    found, shown = difference(curves, method, other, metric), METRICS[metric]
    if found is None:
        return Verdict(None, "")
    text = f"{method}: {shown.short} {found.text(shown.digits, sign='+')} against {other} (tolerance {tolerance:g})"
    if not np.isfinite(found.mean):
        return Verdict(False, f"{method}: {shown.short} is not finite at every seed")
    better = found.mean if shown.higher_is_better else -found.mean
    clear = abs(better + tolerance) > found.half
    return Verdict((better >= -tolerance) is within, text, clear)
