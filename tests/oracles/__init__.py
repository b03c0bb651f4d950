"""Independent references for generalised linear models: numpy and scipy only, nothing here imports `pvi`."""

from .baselines import bcm, streaming_vb, vcl
from .federated import Client, Natural, Trajectory, sequential_pvi, synchronous_pvi
from .glm import (
    Array,
    Covariance,
    Likelihood,
    accuracy,
    elbo,
    expected_log_likelihood,
    kl_divergence,
    linear_regression,
    lppd,
)
from .vi import LocalObjective, Solution, global_vi, maximise

__all__ = [
    "Array",
    "Client",
    "Covariance",
    "Likelihood",
    "LocalObjective",
    "Natural",
    "Solution",
    "Trajectory",
    "accuracy",
    "bcm",
    "elbo",
    "expected_log_likelihood",
    "global_vi",
    "kl_divergence",
    "linear_regression",
    "lppd",
    "maximise",
    "sequential_pvi",
    "streaming_vb",
    "synchronous_pvi",
    "vcl",
]
