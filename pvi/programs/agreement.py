"""All clients must run the same program."""

from collections.abc import Mapping

from pvi.programs.errors import ProgramError
from pvi.programs.sites import Site, Sites


def check_same_sites(sites: Mapping[str, Sites]) -> None:
    """Raises :class:`~pvi.programs.errors.ProgramError` where clients' sites differ.

    Shared sites must have the same names, shapes and supports, private and observed ones the same names: how many rows
    a client has is its own affair.
    """
    (first_name, first), *others = sites.items()
    by_name = {site.name: site for site in first.shared}
    for name, found in others:
        for site in found.shared:
            other = by_name.get(site.name)
            if other is not None and site.shape != other.shape:
                raise ProgramError(
                    f"shared site {site.name!r} has shape {site.shape} at client {name!r} but {other.shape} at "
                    f"client {first_name!r}: do their data have the same columns?"
                )
            if other is not None and repr(site.support) != repr(other.support):
                raise ProgramError(
                    f"shared site {site.name!r} has support {site.support} at client {name!r} but {other.support} "
                    f"at client {first_name!r}"
                )
        for kind in ("shared", "private", "enumerated", "observed"):
            mine = [site.name for site in _of(found, kind)]
            theirs = [site.name for site in _of(first, kind)]
            if mine != theirs:
                raise ProgramError(
                    f"client {name!r} has the {kind} sites {mine}, client {first_name!r} has {theirs}; "
                    "all clients must run the same program"
                )


def _of(sites: Sites, kind: str) -> tuple[Site, ...]:
    groups = {
        "shared": sites.shared,
        "private": sites.private,
        "enumerated": sites.enumerated,
        "observed": sites.observed,
    }
    return groups[kind]
