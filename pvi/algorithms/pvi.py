"""Partitioned variational inference (Ashman et al., 2022, algorithm 1).

| part | choice |
| --- | --- |
| cavity rule | deletion: q / t_m |
| aggregator | product of the changes, shortened while q would be improper |
| solver, schedule | any |
"""

from pvi.aggregators import product
from pvi.algorithms.protocol import Algorithm
from pvi.cavities import deletion


def PVI() -> Algorithm:
    """Partitioned variational inference."""
    return Algorithm("pvi", deletion, product)
