"""Variational continual learning and online VI (Nguyen et al., 2018): one pass of undamped sequential PVI.

| part | choice |
| --- | --- |
| cavity rule | deletion: q, since no factor is revisited |
| aggregator | product |
| solver | any |
| schedule | single pass, undamped |
"""

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import deletion
from pvi.schedules import SinglePass


def VCL() -> Algorithm:
    """Variational continual learning: the last posterior is the next client's prior."""
    return Algorithm("vcl", deletion, product, schedule=SinglePass(), damping=1.0, rounds=1, max_rounds=1, fixed=True)
