"""Independent references for generalised linear models: numpy and scipy only, nothing here imports `pvi`."""

from .baselines import bcm, streaming_vb, vcl
from .evidence import Scales, best_scales, log_evidence, type_two
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
from .power_ep import PowerEP, grouped_power_ep, power_ep
from .stochastic_power_ep import StochasticPowerEP, stochastic_power_ep
from .vi import LocalObjective, Solution, global_vi, maximise

__all__ = [
    "Array",
    "Client",
    "Covariance",
    "Likelihood",
    "LocalObjective",
    "Natural",
    "PowerEP",
    "Scales",
    "Solution",
    "StochasticPowerEP",
    "Trajectory",
    "accuracy",
    "bcm",
    "best_scales",
    "elbo",
    "expected_log_likelihood",
    "global_vi",
    "grouped_power_ep",
    "kl_divergence",
    "linear_regression",
    "log_evidence",
    "lppd",
    "maximise",
    "power_ep",
    "sequential_pvi",
    "stochastic_power_ep",
    "streaming_vb",
    "synchronous_pvi",
    "type_two",
    "vcl",
]
