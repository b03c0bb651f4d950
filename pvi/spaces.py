"""The space that a posterior lives in, as JSON: its sites, their supports and their families."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributions import constraints
from torch.distributions.constraints import Constraint

from pvi.families import Coordinates, DiagonalGaussian, Family, FullGaussian, Product, site_coordinates
from pvi.posterior import Posterior

FAMILIES: dict[str, Callable[[int], Family]] = {"DiagonalGaussian": DiagonalGaussian, "FullGaussian": FullGaussian}
CONSTRAINTS = (
    "real", "positive", "nonnegative", "unit_interval", "real_vector", "simplex", "corr_cholesky", "lower_cholesky",
    "positive_definite",
)  # fmt: skip
BOUNDS = {
    "greater_than": ("lower_bound",),
    "greater_than_eq": ("lower_bound",),
    "less_than": ("upper_bound",),
    "interval": ("lower_bound", "upper_bound"),
    "half_open_interval": ("lower_bound", "upper_bound"),
}


class CheckpointError(ValueError):
    """A folder that holds no result, or one that this version cannot read."""


def space_to_json(posterior: Posterior) -> dict[str, Any]:
    """The sites and families of a posterior: everything but its natural parameters."""
    sites = [
        {"name": site.name, "shape": list(site.shape), "support": constraint_to_json(site.support, site.name)}
        for site in posterior.coordinates.sites
    ]
    family = posterior.family
    members = [
        {"name": name, "family": type(member).__name__, "size": member.size}
        for name, member in zip(family.names, family.members, strict=True)
    ]
    return {"sites": sites, "members": members}


def space_from_json(description: dict[str, Any], folder: Path) -> tuple[Product, Coordinates]:
    """The inverse of :func:`space_to_json`."""
    members = description["members"]
    unknown = sorted({member["family"] for member in members} - set(FAMILIES))
    if unknown:
        raise CheckpointError(f"{folder} needs the family {', '.join(map(repr, unknown))}, which this version lacks")
    family = Product(
        tuple(member["name"] for member in members),
        tuple(FAMILIES[member["family"]](member["size"]) for member in members),
    )
    sites = (
        site_coordinates(site["name"], tuple(site["shape"]), constraint_from_json(site["support"]))
        for site in description["sites"]
    )
    return family, Coordinates(tuple(sites))


def constraint_to_json(constraint: Constraint, site: str) -> dict[str, Any]:
    """A support as JSON; raises :class:`CheckpointError` for one that has no description."""
    if isinstance(constraint, constraints.independent):
        base = constraint_to_json(constraint.base_constraint, site)
        return {"name": "independent", "base": base, "dims": constraint.reinterpreted_batch_ndims}
    for name in CONSTRAINTS:
        if constraint is getattr(constraints, name) or repr(constraint) == repr(getattr(constraints, name)):
            return {"name": name}
    for name, bounds in BOUNDS.items():
        values = [torch.as_tensor(getattr(constraint, bound)) for bound in bounds if hasattr(constraint, bound)]
        if type(constraint) is getattr(constraints, name) and all(value.numel() == 1 for value in values):
            return {"name": name} | {bound: float(getattr(constraint, bound)) for bound in bounds}
    raise CheckpointError(f"site {site!r}: cannot save its support {constraint}")


def constraint_from_json(description: dict[str, Any]) -> Constraint:
    """The inverse of :func:`constraint_to_json`."""
    name = description["name"]
    if name == "independent":
        return constraints.independent(constraint_from_json(description["base"]), description["dims"])
    if name in BOUNDS:
        bounded: Constraint = getattr(constraints, name)(*[description[bound] for bound in BOUNDS[name]])
        return bounded
    found: Constraint = getattr(constraints, name)
    return found
