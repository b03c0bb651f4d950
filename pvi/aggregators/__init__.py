"""How the server combines what clients send."""

from pvi.aggregators.product import Aggregator, product

__all__ = ["Aggregator", "product"]
