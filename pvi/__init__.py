"""Federated Bayesian inference with Pyro: partitioned variational inference.

Data stay with their clients; the answer is the posterior that pooling all rows would have given.
"""

import importlib
from typing import Any

from pvi import schedules, solvers, theory
from pvi.acceleration import Anderson
from pvi.algorithms import (
    FOLA,
    PVI,
    SCAFFOLD,
    VCL,
    Algorithm,
    BCMSame,
    BCMSplit,
    Ditto,
    FedAvg,
    FedCurv,
    FedNova,
    FedPA,
    FedProx,
    FOLAExperts,
    FOLAOffline,
    FOLAPrior,
    GlobalVI,
    PerFedAvg,
    PFedBayes,
    PFedMe,
    PowerEP,
    StochasticEP,
    StreamingVB,
)
from pvi.checkpoint import CheckpointError, load
from pvi.damping import Auto, Decay
from pvi.factors import Factor
from pvi.history import Round
from pvi.posterior import ImproperError, Posterior
from pvi.programs.guides import FullCovariance, MeanField, PriorFamily
from pvi.programs.names import ModelNameError
from pvi.programs.sites import ProgramError
from pvi.result import Result
from pvi.run import fit, fit_rounds

__version__ = "0.1.0"

_LAZY = ("data", "diagnostics", "families", "models", "report", "testing")


def __getattr__(name: str) -> Any:
    """Parts that are slow to import (pandas, ArviZ) load when first used."""
    if name in _LAZY:
        return importlib.import_module(f"pvi.{name}")
    raise AttributeError(f"module 'pvi' has no attribute {name!r}")


__all__ = [
    "FOLA",
    "PVI",
    "SCAFFOLD",
    "VCL",
    "Algorithm",
    "Anderson",
    "Auto",
    "BCMSame",
    "BCMSplit",
    "CheckpointError",
    "Decay",
    "Ditto",
    "FOLAExperts",
    "FOLAOffline",
    "FOLAPrior",
    "Factor",
    "FedAvg",
    "FedCurv",
    "FedNova",
    "FedPA",
    "FedProx",
    "FullCovariance",
    "GlobalVI",
    "ImproperError",
    "MeanField",
    "ModelNameError",
    "PFedBayes",
    "PFedMe",
    "PerFedAvg",
    "Posterior",
    "PowerEP",
    "PriorFamily",
    "ProgramError",
    "Result",
    "Round",
    "StochasticEP",
    "StreamingVB",
    "fit",
    "fit_rounds",
    "load",
    "schedules",
    "solvers",
    "theory",
]
