"""Published experiments as short declarations over the public API."""

from typing import Any

from pvi.experiments.fola import FOLAStudy
from pvi.experiments.icu import ICU
from pvi.experiments.mnist import MNIST
from pvi.experiments.pfedbayes import PFedBayes
from pvi.experiments.uci import UCI

EXPERIMENTS: dict[str, Any] = {kind.NAME: kind for kind in (UCI, ICU, MNIST, PFedBayes, FOLAStudy)}
"""By their names on the command line."""

__all__ = ["EXPERIMENTS", "ICU", "MNIST", "UCI", "FOLAStudy", "PFedBayes"]
