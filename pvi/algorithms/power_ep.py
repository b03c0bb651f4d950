"""Power EP (Minka, 2004) and stochastic power EP (Li et al., 2015): another divergence, another cavity.

| part | power EP | stochastic power EP |
| --- | --- | --- |
| cavity rule | deletion: q / t_m | average deletion: q / (q / p)^(1/M) |
| aggregator | product | product |
| solver | one that minimises the alpha divergence | the same |
| schedule | synchronous | sequential, undamped |

Alpha = 1 is expectation propagation, alpha towards 0 PVI (theorem 4.1).
"""

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import average_deletion, deletion
from pvi.schedules import Sequential


def PowerEP(alpha: float = 1.0) -> Algorithm:
    """Power EP with the power ``alpha`` in (0, 1]; raises ``ValueError`` for another one."""
    return Algorithm("power-ep", deletion, product, alpha=_check(alpha))


def StochasticEP(alpha: float = 1.0) -> Algorithm:
    """Stochastic power EP: one average factor for all clients. ``alpha`` as in :func:`PowerEP`."""
    schedule = Sequential()
    return Algorithm("stochastic-ep", average_deletion, product, alpha=_check(alpha), schedule=schedule, damping=1.0)


def _check(alpha: float) -> float:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1:
        raise ValueError(f"alpha must lie in (0, 1], got {alpha!r}; the limit 0 is pvi.PVI()")
    return float(alpha)
