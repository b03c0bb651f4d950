"""Algorithms: a table and a few lines of wiring each."""

from collections.abc import Callable

from pvi.algorithms.bcm import BCMSame, BCMSplit
from pvi.algorithms.fedavg import FedAvg
from pvi.algorithms.fedcurv import FedCurv
from pvi.algorithms.fedprox import FedProx
from pvi.algorithms.fola import FOLA, FOLAExpertsOnly, FOLAOffline, FOLAPriorOnly
from pvi.algorithms.global_vi import GlobalVI
from pvi.algorithms.pfedbayes import PFedBayes
from pvi.algorithms.power_ep import PowerEP, StochasticEP
from pvi.algorithms.protocol import Algorithm
from pvi.algorithms.pvi import PVI
from pvi.algorithms.streaming_vb import StreamingVB
from pvi.algorithms.vcl import VCL

ALGORITHMS: dict[str, Callable[[], Algorithm]] = {
    "pvi": PVI,
    "power-ep": PowerEP,
    "stochastic-ep": StochasticEP,
    "global-vi": GlobalVI,
    "bcm-same": BCMSame,
    "bcm-split": BCMSplit,
    "vcl": VCL,
    "streaming-vb": StreamingVB,
    "pfedbayes": PFedBayes,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedcurv": FedCurv,
    "fola": FOLA,
    "fola-offline": FOLAOffline,
    "fola-prior-only": FOLAPriorOnly,
    "fola-experts-only": FOLAExpertsOnly,
}


def resolve_algorithm(algorithm: Algorithm | str) -> Algorithm:
    """An algorithm by name, or the object itself.

    Raises ``ValueError`` for an unknown name and ``TypeError`` for what is neither.
    """
    if isinstance(algorithm, Algorithm):
        return algorithm
    if not isinstance(algorithm, str):
        raise TypeError(
            f"algorithm is a name or an Algorithm, got {algorithm!r}; an algorithm with options is called, as in "
            "pvi.PowerEP(alpha=0.5)"
        )
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm]()


__all__ = [
    "ALGORITHMS",
    "FOLA",
    "PVI",
    "VCL",
    "Algorithm",
    "BCMSame",
    "BCMSplit",
    "FOLAExpertsOnly",
    "FOLAOffline",
    "FOLAPriorOnly",
    "FedAvg",
    "FedCurv",
    "FedProx",
    "GlobalVI",
    "PFedBayes",
    "PowerEP",
    "StochasticEP",
    "StreamingVB",
    "resolve_algorithm",
]
