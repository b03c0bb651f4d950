"""How the server combines what clients send."""

from pvi.aggregators.average import MomentAverage, ParameterAverage
from pvi.aggregators.product import Aggregator, product

__all__ = ["Aggregator", "MomentAverage", "ParameterAverage", "product"]
