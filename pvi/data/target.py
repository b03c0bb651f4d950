"""What to predict: which values of the target column count as 1."""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pvi.data.cells import Cells, number
from pvi.data.errors import TableError, listed, place
from pvi.data.kinds import ordered_levels
from pvi.data.statistics import ColumnStatistics

Task = Literal["binary", "numeric"]


@dataclass(frozen=True)
class TargetRule:
    """How the target column becomes y.

    `operator` "" keeps the number as it is (`task` "binary": it must be 0 or 1). Else y is 1 where the cell
    compares so to `value`: a number is compared by value, text with the cell as it is written.
    """

    column: str
    task: Task
    operator: str = ""
    value: float | str | None = None


def target_rule(column: str, seen: ColumnStatistics, positive: object = None, task: Task = "binary") -> TargetRule:
    """The rule for a target column from the statistics of all clients.

    `positive` is ">0", ">=50", "<3", "<=3", "==x", "!=x" or a literal value; None needs numbers 0 and 1, the
    words true and false, or `task` "numeric". In a column of text a literal comes first: ">50K" is a value there.
    Raises `TableError` where the values found do not fit.
    """
    where = place(column=column)
    is_number = seen.numbers == seen.count
    values = listed(seen.levels) if seen.levels is not None else f"{seen.distinct} different ones"
    if task == "numeric":
        if positive is not None:
            raise TableError(f"{where}positive={positive!r} is for task='binary': leave one of them out")
        if not is_number:
            raise TableError(f"{where}a numeric target must hold numbers only. {seen.stray or 'Found: ' + values}")
        return TargetRule(column, task)
    if positive is not None:
        return _positive_rule(column, seen, str(positive).strip(), is_number, values)
    if is_number and seen.levels is not None and {number(level) for level in seen.levels} <= {0.0, 1.0}:
        return TargetRule(column, task)
    words = {level.lower(): level for level in seen.levels or ()}
    if set(words) == {"false", "true"} and seen.levels is not None and len(seen.levels) == 2:
        return TargetRule(column, task, "==", words["true"])
    example = max(seen.levels, key=number) if is_number and seen.levels else next(iter(seen.levels or ()), "x")
    raise TableError(
        f"{where}the target's values are {values}: say which of them is positive, for example "
        f"positive={example!r}{' or ' + repr('>0') if is_number else ''} (--positive), or task='numeric' to "
        "predict the number itself"
    )


def _positive_rule(column: str, seen: ColumnStatistics, positive: str, is_number: bool, values: str) -> TargetRule:
    where = place(column=column)
    parts = re.fullmatch(r"(>=|<=|!=|==|>|<)\s*(\S.*)", positive)
    if is_number:
        operator, text = parts.groups() if parts else ("==", positive)
        if not np.isfinite(number(text)):
            raise TableError(
                f"{where}positive={positive!r} is not understood: write a number, or '>0', '>=50', '<=3', '!=2'"
            )
        return TargetRule(column, "binary", operator, number(text))
    if seen.levels is None or positive in seen.levels:
        return TargetRule(column, "binary", "==", positive)
    if parts and parts[1] in ("==", "!="):
        operator, positive = parts.groups()
    elif parts and np.isfinite(number(parts[2])):
        # Order needs numbers, and some client has cells that are none.
        raise TableError(f"{where}positive={positive!r} compares numbers. {seen.stray or 'Found: ' + values}")
    if positive not in seen.levels:
        raise TableError(f"{where}no cell is {positive!r}; the values are {values}")
    return TargetRule(column, "binary", operator if parts else "==", positive)


def positive_note(rule: TargetRule, seen: ColumnStatistics, positive: object) -> str:
    """A sentence on what a literal `positive` made of three or more values; "" where there is nothing to say."""
    if positive is None or rule.operator != "==" or str(positive).strip().startswith("==") or rule.value is None:
        return ""
    if seen.levels is None:
        return f"Target {rule.column!r}: {rule.value!r} counts as positive, all its other values as negative."
    levels, by_value = ordered_levels(seen.levels)
    chosen = [name for name in levels if (number(name) if by_value else name) == rule.value]
    if len(levels) < 3 or not chosen:
        return ""
    said = sorted(levels, key=lambda name: -levels[name])
    counts = {name: f"{name if by_value else repr(name)} ({levels[name]})" for name in said}
    others = listed((counts[name] for name in said if name not in chosen), 20)
    return f"Target {rule.column!r}: {counts[chosen[0]]} counts as positive, all other values as negative: {others}."


def apply_rule(rule: TargetRule, column: Cells, *, rows: np.ndarray, client: str = "") -> np.ndarray:
    """The target of each row, float64 [n]. Raises `TableError` for missing cells and for values out of place.

    `rows` are the row numbers, for the messages.
    """

    def refuse(bad: np.ndarray, what: str) -> None:
        if bad.any():
            raise TableError(f"{place(client, rule.column, rows[np.flatnonzero(bad)[0]])}{what}")

    refuse(column.missing, "the target is missing: correct the cell, or say missing='drop' to leave such rows out")
    if isinstance(rule.value, str):
        chosen = np.array([label == rule.value for label in column.labels], dtype=bool)
        return column.spread(chosen if rule.operator == "==" else ~chosen)
    values = column.values()
    refuse(np.isnan(values), "the target is not a number")
    if rule.value is None:
        if rule.task == "binary":
            refuse(~np.isin(values, (0.0, 1.0)), "the target is neither 0 nor 1")
        return values
    comparisons = {
        "==": np.equal,
        "!=": np.not_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "<": np.less,
        "<=": np.less_equal,
    }
    return comparisons[rule.operator](values, rule.value).astype(np.float64)
