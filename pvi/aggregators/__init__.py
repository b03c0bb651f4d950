"""How the server combines what clients send."""

from pvi.aggregators.average import LocationAverage, MomentAverage, ParameterAverage
from pvi.aggregators.product import Aggregator, product

__all__ = ["Aggregator", "LocationAverage", "MomentAverage", "ParameterAverage", "product"]
