"""Exponential families: pure functions of natural-parameter tensors."""

from pvi.families.diagonal_gaussian import DiagonalGaussian
from pvi.families.full_gaussian import FullGaussian
from pvi.families.product import Product
from pvi.families.protocol import (
    Family,
    GaussianFamily,
    cross_entropy,
    entropy,
    expected_log_factor,
    kl,
    largest_step,
    log_prob,
)
from pvi.families.transformed import Coordinates, SiteCoordinates, site_coordinates

__all__ = [
    "Coordinates",
    "DiagonalGaussian",
    "Family",
    "FullGaussian",
    "GaussianFamily",
    "Product",
    "SiteCoordinates",
    "cross_entropy",
    "entropy",
    "expected_log_factor",
    "kl",
    "largest_step",
    "log_prob",
    "site_coordinates",
]
