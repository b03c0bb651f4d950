"""Bayesian committee machines (Tresp, 2000): every client alone, one round, the results multiplied.

| part | choice |
| --- | --- |
| cavity rule | "same": the prior p; "split": p^(1/M) |
| aggregator | product: η_q = η_p + Σ (η_{q_m} - η_p), or η_p + Σ (η_{q_m} - η_p / M) |
| solver | any |
| schedule | synchronous, undamped, one round |
"""

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import prior_alone, prior_share


def BCMSame() -> Algorithm:
    """The committee machine in which every client uses the whole prior, divided out again by the server."""
    return Algorithm("bcm-same", prior_alone, product, damping=1.0, rounds=1, max_rounds=1, fixed=True)


def BCMSplit() -> Algorithm:
    """The committee machine in which every client uses its share p^(1/M) of the prior."""
    return Algorithm("bcm-split", prior_share, product, damping=1.0, rounds=1, max_rounds=1, fixed=True)
