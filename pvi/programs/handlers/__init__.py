"""Effect handlers, one a file."""

from pvi.programs.handlers.cavity import CavityPrior
from pvi.programs.handlers.following import Followed, Following
from pvi.programs.handlers.parameters import Parameters
from pvi.programs.handlers.placeholders import Placeholders
from pvi.programs.handlers.predictor import Predictor
from pvi.programs.handlers.rows import Rows
from pvi.programs.handlers.scale_observed import ScaleObserved
from pvi.programs.handlers.values import Values

__all__ = [
    "CavityPrior",
    "Followed",
    "Following",
    "Parameters",
    "Placeholders",
    "Predictor",
    "Rows",
    "ScaleObserved",
    "Values",
]
