"""Streaming variational Bayes (Broderick et al., 2013) with revisits: no deletion, so rows count at every visit.

| part | choice |
| --- | --- |
| cavity rule | no deletion: q |
| aggregator | product |
| solver | any |
| schedule | sequential, undamped |
"""

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import no_deletion
from pvi.schedules import Sequential


def StreamingVB() -> Algorithm:
    """Streaming variational Bayes: over-counts from the second pass on."""
    return Algorithm("streaming-vb", no_deletion, product, schedule=Sequential(), damping=1.0)
