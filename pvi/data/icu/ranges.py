"""Values that no living adult has, and what becomes of them: they count as not measured, and a note says how many."""

from collections.abc import Mapping, Sequence

import numpy as np

from pvi.data.errors import TableError
from pvi.data.icu.features import HOURS, TOLERANCE, Measurements

Ranges = Mapping[str, tuple[float, float]]
"""Variable -> the lowest and the highest value that is taken as measured."""

IMPOSSIBLE_OUTSIDE: Ranges = {
    "Diastolic blood pressure": (5, 300),  # mmHg; 0 is a line that is not connected
    "Fraction inspired oxygen": (0.2, 1),
    "Glasgow coma scale total": (3, 15),
    "Glucose": (5, 3000),  # mg/dl
    "Heart Rate": (10, 350),  # beats a minute
    "Height": (100, 250),  # cm
    "Mean blood pressure": (10, 350),  # mmHg
    "Oxygen saturation": (10, 100),  # %
    "Respiratory rate": (0, 120),  # breaths a minute; a ventilated patient may take none
    "Systolic blood pressure": (20, 350),  # mmHg
    "Temperature": (20, 45),  # °C
    "Weight": (20, 400),  # kg
    "pH": (6.3, 8),
}
"""Bounds wide enough for extreme but survivable values; both ends are allowed. Other variables have none."""


def keep_possible(
    found: Measurements, variables: Sequence[str], ranges: Ranges, hours: float = HOURS
) -> tuple[Measurements, tuple[str, ...]]:
    """The measurements that are in range and from 0 to `hours`, and a sentence for each kind that is not.

    Raises `TableError` for the range of an unknown variable or one whose ends are in the wrong order.
    """
    for name, (low, high) in ranges.items():
        if name not in variables or not low <= high:
            raise TableError(
                f"ranges: {name!r} from {low} to {high} is no range of the variables {', '.join(variables)}"
            )
    late = ~((found.hours > -TOLERANCE) & (found.hours < hours + TOLERANCE))
    bounds = np.array([ranges.get(name, (-np.inf, np.inf)) for name in variables], dtype=np.float64)
    low_of, high_of = bounds[found.variable].T
    wrong = ~late & ((found.values < low_of) | (found.values > high_of))
    counts = np.bincount(found.variable[wrong], minlength=len(variables))
    notes = [
        f"{name}: {count} of {int((found.variable[~late] == place).sum())} values are outside {bounds[place, 0]:g} to "
        f"{bounds[place, 1]:g} and count as not measured."
        for place, (name, count) in enumerate(zip(variables, counts.tolist(), strict=True))
        if count
    ]
    if late.any():
        notes.append(f"{int(late.sum())} measurements before hour 0 or after hour {hours:g} are not used.")
    kept = ~(late | wrong)
    return Measurements(*(part[kept] for part in found)), tuple(notes)
