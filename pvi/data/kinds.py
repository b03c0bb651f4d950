"""What a column holds, judged from the merged statistics of all clients, so that all clients judge alike."""

import math
from collections.abc import Mapping

from pvi.data.cells import number
from pvi.data.columns import Kind
from pvi.data.errors import TableError, listed, place
from pvi.data.statistics import MOST_LEVELS, ColumnStatistics

# Texts that mean 0 and 1, in lower case. Sorted text has the one for 1 last.
PAIRS = (("no", "yes"), ("false", "true"), ("n", "y"), ("f", "t"), ("off", "on"))


# A column is one of spoilt numbers where this share of its cells are numbers, and these are not a few codes.
MOSTLY, CODES = 0.8, 10


def kind_of(name: str, seen: ColumnStatistics, said: Kind | None = None) -> Kind:
    """The kind of a column; `said` by the user comes before what the cells look like.

    All numbers: "numeric", or "boolean" for 0 and 1. Text: "boolean" for yes and no and the like, else
    "categorical". One value everywhere, or no cell at all: "constant". Raises `TableError` for a boolean of
    other than two values, for text of more than 50 levels, and for numbers among which there is some text.
    """
    where, levels = place(column=name), seen.levels
    if seen.count == 0 or (seen.numbers == seen.count and seen.low == seen.high):
        return "constant"
    if levels is not None and len(levels) == 1:
        return "constant"
    if said == "boolean" and (levels is None or len(ordered_levels(levels)[0]) != 2):
        raise TableError(f"{where}boolean needs two values, found {listed(levels or ['many'])}")
    if said is not None:
        return said
    if seen.numbers == seen.count:
        return "boolean" if levels is not None and {number(level) for level in levels} == {0.0, 1.0} else "numeric"
    stray = [level for level in levels or () if math.isnan(number(level))]
    if seen.numbers >= MOSTLY * seen.count and (levels is None or len(levels) - len(stray) >= CODES):
        raise TableError(
            f"{where}Most cells are numbers, but {seen.stray or 'there is ' + listed(map(repr, stray))}. Correct the "
            "cell, or list it in na (--na) if it means missing; or say that the column is categorical (--categorical) "
            "or, to have such cells found one by one, numeric (--numeric)"
        )
    if levels is None or len(levels) > MOST_LEVELS:
        hint = f". Most cells are numbers, but {seen.stray}" if seen.stray else ""
        raise TableError(
            f"{where}text of more than {MOST_LEVELS} different values, an identifier? Leave it out (drop), or say "
            f"that it is categorical{hint}"
        )
    return "boolean" if tuple(sorted(map(str.lower, levels))) in PAIRS else "categorical"


def ordered_levels(levels: Mapping[str, int]) -> tuple[dict[str, int], bool]:
    """Levels in order with their counts, and whether they are numbers.

    Where all labels are numbers they are ordered by value and "4" and "4.0" are one level: it keeps its
    spelling if each level of the column has one only, else all are written as Python writes a float ("4.0").
    """
    values = {number(level) for level in levels}
    if any(map(math.isnan, values)):
        return dict(sorted(levels.items())), False
    ordered = sorted(levels, key=number)
    if len(values) == len(levels):
        return {level: levels[level] for level in ordered}, True
    merged: dict[str, int] = {}
    for level in ordered:
        merged[repr(number(level))] = merged.get(repr(number(level)), 0) + levels[level]
    return merged, True
