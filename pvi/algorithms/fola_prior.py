"""FedAvg's average with FOLA's prior in every client's loss: one half of FOLA (Liu et al. 2021, section IV).

| part | choice |
| --- | --- |
| cavity rule | no deletion: the prior of a visit is the server's N(μ_S, Λ_S⁻¹) |
| solver | laplace steps: MAP under λ times that prior, precision from the curvature along the way |
| aggregator | location average, and the average of precisions |
| schedule | synchronous, undamped, or a random subset |
"""

from typing import Any

from pvi.algorithms.fola import variant
from pvi.algorithms.protocol import Algorithm


@variant("fola-prior", aggregation="average")
def FOLAPrior(**options: Any) -> Algorithm:
    """FedAvg's average with FOLA's prior of a visit; options as in :func:`pvi.FOLA`."""
    raise NotImplementedError  # variant's
