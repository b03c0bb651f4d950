"""FedAvg's average with FOLA's prior in every client's loss: one half of FOLA (Liu et al. 2021, section IV).

| part | choice |
| --- | --- |
| cavity rule | no deletion: the prior of a visit is the server's N(μ_S, Λ_S⁻¹) |
| solver | laplace steps: MAP under λ times that prior, precision from the curvature along the way |
| aggregator | location average, and the average of precisions |
| schedule | synchronous, undamped, or a random subset |
"""

from pvi.algorithms.fola import variant

FOLAPrior = variant(
    "fola-prior", "FOLAPrior", __name__, "FedAvg's average with FOLA's prior of a visit", aggregation="average"
)
