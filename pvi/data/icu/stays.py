"""What a reader gives: the features and outcomes of intensive care stays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Stays:
    """n stays in intensive care as rows of features.

    `records` names each stay, `features` float64 [n, d] has NaN where there is no measurement (numbers of measurements
    are 0 there, never NaN), `columns` the d names, `died` float64 [n] is 1 for death in hospital, else 0. `unit`: each
    stay's kind of intensive care unit, "" where unknown. `notes`: sentences about what was left out and why.
    """

    name: str
    records: tuple[str, ...]
    features: NDArray[np.float64]
    columns: tuple[str, ...]
    died: NDArray[np.float64]
    unit: tuple[str, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.records)
