"""Algorithms: a table and a few lines of wiring each."""

from collections.abc import Callable

from pvi.algorithms.bcm import BCMSame, BCMSplit
from pvi.algorithms.ditto import Ditto
from pvi.algorithms.fedavg import FedAvg
from pvi.algorithms.fedcurv import FedCurv
from pvi.algorithms.fednova import FedNova
from pvi.algorithms.fedpa import FedPA
from pvi.algorithms.fedprox import FedProx
from pvi.algorithms.fola import FOLA, FOLAExperts, FOLAOffline
from pvi.algorithms.fola_prior import FOLAPrior
from pvi.algorithms.global_vi import GlobalVI
from pvi.algorithms.per_fedavg import PerFedAvg
from pvi.algorithms.pfedbayes import PFedBayes
from pvi.algorithms.pfedme import PFedMe
from pvi.algorithms.power_ep import PowerEP, StochasticEP
from pvi.algorithms.protocol import Algorithm
from pvi.algorithms.pvi import PVI
from pvi.algorithms.scaffold import SCAFFOLD
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
    "fedpa": FedPA,
    "scaffold": SCAFFOLD,
    "fednova": FedNova,
    "ditto": Ditto,
    "pfedme": PFedMe,
    "per-fedavg": PerFedAvg,
    "fola": FOLA,
    "fola-offline": FOLAOffline,
    "fola-prior": FOLAPrior,
    "fola-experts": FOLAExperts,
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
    "SCAFFOLD",
    "VCL",
    "Algorithm",
    "BCMSame",
    "BCMSplit",
    "Ditto",
    "FOLAExperts",
    "FOLAOffline",
    "FOLAPrior",
    "FedAvg",
    "FedCurv",
    "FedNova",
    "FedPA",
    "FedProx",
    "GlobalVI",
    "PFedBayes",
    "PFedMe",
    "PerFedAvg",
    "PowerEP",
    "StochasticEP",
    "StreamingVB",
    "resolve_algorithm",
]
