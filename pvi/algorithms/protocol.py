"""An algorithm is a short table that names its parts."""

from dataclasses import dataclass

from pvi.aggregators import Aggregator
from pvi.factors import CavityRule


@dataclass(frozen=True)
class Algorithm:
    """Cavity rule and aggregator; solver and schedule are chosen beside it."""

    name: str
    cavity: CavityRule
    aggregate: Aggregator
