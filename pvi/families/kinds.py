"""What kind of family a product is: that of its members."""

from typing import TypeGuard

from pvi.families.product import Product
from pvi.families.protocol import DiscreteFamily, Family, GaussianFamily


def is_gaussian(family: Family) -> TypeGuard[GaussianFamily]:
    """Whether the family is Gaussian; a product is where all its members are."""
    if isinstance(family, Product):
        return all(is_gaussian(member) for member in family.members)
    return isinstance(family, GaussianFamily)


def is_discrete(family: Family) -> TypeGuard[DiscreteFamily]:
    """Whether the family has finitely many values; a product has where all its members have."""
    if isinstance(family, Product):
        return all(is_discrete(member) for member in family.members)
    return isinstance(family, DiscreteFamily)
