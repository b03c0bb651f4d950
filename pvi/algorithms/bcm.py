"""Bayesian committee machines (Tresp, 2000): every client alone, one round, the results multiplied.

| part | choice |
| --- | --- |
| cavity rule | "same": prior alone, p; "split": prior share, p^(1/M), or prior row share, p^(n_m / n) |
| aggregator | product: η_q = η_p + Σ (η_{q_m} - η_p), or η_p + Σ (η_{q_m} - s_m η_p) with the share s_m |
| solver | any |
| schedule | synchronous, undamped, one round |
"""

from typing import Literal

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import prior_alone, prior_row_share, prior_share


def BCMSame() -> Algorithm:
    """The committee machine in which every client uses the whole prior, divided out again by the server."""
    return Algorithm("bcm-same", prior_alone, product, damping=1.0, rounds=1, max_rounds=1, fixed=True)


def BCMSplit(shares: Literal["clients", "rows"] = "clients") -> Algorithm:
    """The committee machine in which every client uses its share of the prior.

    ``"clients"``: p^(1/M), as the paper writes; ``"rows"``: p^(n_m / n), as its published runs do, for which the
    clients' numbers of rows must be known.
    """
    if shares not in ("clients", "rows"):
        raise ValueError(f"BCMSplit: shares is 'clients' or 'rows', got {shares!r}")
    rule = prior_share if shares == "clients" else prior_row_share
    return Algorithm("bcm-split", rule, product, damping=1.0, rounds=1, max_rounds=1, fixed=True)
