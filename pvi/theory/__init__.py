"""What papers prove about the algorithms, as functions to evaluate and to test against."""

from pvi.theory.pfedbayes import (
    Bound,
    approximation_error,
    minimax_rate,
    network_size,
    num_weights,
    pfedbayes_bound,
)
from pvi.theory.server import optimal_server, server_objective

__all__ = [
    "Bound",
    "approximation_error",
    "minimax_rate",
    "network_size",
    "num_weights",
    "optimal_server",
    "pfedbayes_bound",
    "server_objective",
]
