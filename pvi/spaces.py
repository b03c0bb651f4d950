"""The space that a posterior lives in, as JSON: its sites, their supports and their families."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributions import constraints
from torch.distributions.constraints import Constraint

from pvi.families import (
    Bernoulli,
    Beta,
    Categorical,
    Coordinates,
    DiagonalGaussian,
    Dirichlet,
    Family,
    FullGaussian,
    Gamma,
    Product,
    SiteCoordinates,
    own_coordinates,
    site_coordinates,
)
from pvi.posterior import Posterior

FAMILIES: dict[str, Callable[..., Family]] = {
    family.__name__: family
    for family in (DiagonalGaussian, FullGaussian, Gamma, Beta, Dirichlet, Categorical, Bernoulli)
}
"""What can be saved: a member is the name of its class and its fields."""
CONSTRAINTS = (
    "real", "positive", "nonnegative", "unit_interval", "real_vector", "simplex", "corr_cholesky", "lower_cholesky",
    "positive_definite", "boolean",
)  # fmt: skip
BOUNDS = {
    "greater_than": ("lower_bound",),
    "greater_than_eq": ("lower_bound",),
    "less_than": ("upper_bound",),
    "interval": ("lower_bound", "upper_bound"),
    "half_open_interval": ("lower_bound", "upper_bound"),
    "integer_interval": ("lower_bound", "upper_bound"),
}


class CheckpointError(ValueError):
    """A folder that holds no result, or one that this version cannot read."""


def space_to_json(posterior: Posterior) -> dict[str, Any]:
    """The sites and families of a posterior: everything but its natural parameters."""
    sites = [
        {"name": site.name, "shape": list(site.shape), "support": constraint_to_json(site.support, site.name)}
        | {"own": site.is_real}
        for site in posterior.coordinates.sites
    ]
    members: list[dict[str, Any]] = []
    for name, member in zip(posterior.family.names, posterior.family.members, strict=True):
        kind = type(member).__name__
        if FAMILIES.get(kind) is not type(member):
            raise CheckpointError(f"site {name!r}: cannot save the family {kind}; there are {list(FAMILIES)}")
        members.append({"name": name, "family": kind} | vars(member))
    return {"sites": sites, "members": members}


def space_from_json(description: dict[str, Any], folder: Path) -> tuple[Product, Coordinates]:
    """The inverse of :func:`space_to_json`."""
    members = description["members"]
    unknown = sorted({member["family"] for member in members} - set(FAMILIES))
    if unknown:
        raise CheckpointError(f"{folder} needs the family {', '.join(map(repr, unknown))}, which this version lacks")
    family = Product(
        tuple(member["name"] for member in members),
        tuple(_member(member) for member in members),
    )
    return family, Coordinates(tuple(_site(site) for site in description["sites"]))


def _member(description: dict[str, Any]) -> Family:
    fields = {name: value for name, value in description.items() if name not in ("name", "family")}
    return FAMILIES[description["family"]](**fields)


def _site(description: dict[str, Any]) -> SiteCoordinates:
    # Results of earlier versions do not say it: all their sites were unconstrained.
    make = own_coordinates if description.get("own", False) else site_coordinates
    return make(description["name"], tuple(description["shape"]), constraint_from_json(description["support"]))


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
            number = int if name == "integer_interval" else float
            return {"name": name} | {bound: number(getattr(constraint, bound)) for bound in bounds}
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
