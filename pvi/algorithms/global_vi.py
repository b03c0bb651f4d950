"""Global variational inference: PVI with one client that holds all rows (M = 1).

| part | choice |
| --- | --- |
| cavity rule | deletion: the prior, since there is no other client |
| aggregator | product |
| solver | any; more rounds go on where the last one ended |
| schedule | synchronous, undamped |
"""

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import deletion


def GlobalVI() -> Algorithm:
    """Global variational inference on the pooled rows: the reference that federated runs are held against."""
    return Algorithm("global-vi", deletion, product, damping=1.0, rounds=1, fixed=True, pooled=True)
