"""How the server combines what clients send."""

from pvi.aggregators.average import LocationAverage, MomentAverage, ParameterAverage
from pvi.aggregators.experts import Experts
from pvi.aggregators.product import Aggregator, product

__all__ = ["Aggregator", "Experts", "LocationAverage", "MomentAverage", "ParameterAverage", "product"]
