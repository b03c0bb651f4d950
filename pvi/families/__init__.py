"""Exponential families: pure functions of natural-parameter tensors."""

from pvi.families.bernoulli import Bernoulli
from pvi.families.beta import Beta
from pvi.families.categorical import Categorical
from pvi.families.diagonal_gaussian import DiagonalGaussian
from pvi.families.dirichlet import Dirichlet
from pvi.families.full_gaussian import FullGaussian
from pvi.families.gamma import Gamma
from pvi.families.kinds import is_discrete, is_gaussian
from pvi.families.product import Product
from pvi.families.protocol import (
    DiscreteFamily,
    Family,
    GaussianFamily,
    cross_entropy,
    entropy,
    expected_log_factor,
    kl,
    largest_step,
    log_prob,
)
from pvi.families.transformed import Coordinates, SiteCoordinates, own_coordinates, site_coordinates

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "Coordinates",
    "DiagonalGaussian",
    "Dirichlet",
    "DiscreteFamily",
    "Family",
    "FullGaussian",
    "Gamma",
    "GaussianFamily",
    "Product",
    "SiteCoordinates",
    "cross_entropy",
    "entropy",
    "expected_log_factor",
    "is_discrete",
    "is_gaussian",
    "kl",
    "largest_step",
    "log_prob",
    "own_coordinates",
    "site_coordinates",
]
