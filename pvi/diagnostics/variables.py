"""Draws and data as xarray variables: (dimensions, array) by name."""

import logging
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pvi.diagnostics.labels import dimensions
from pvi.families import Coordinates
from pvi.result import Result

if TYPE_CHECKING:
    import xarray

Variables = dict[str, tuple[list[str], np.ndarray]]
SAMPLE = ["chain", "draw"]
MOST_NUMBERS = 125_000_000
"""Draws of personal posteriors in one export, in numbers: a gigabyte."""
logger = logging.getLogger("pvi")


class Group(NamedTuple):
    """A group's variables, and the coordinates that only this group has."""

    variables: Variables
    coordinates: dict[str, Any] = {}  # noqa: RUF012 - a record, never changed


def shared_sites(coordinates: Coordinates, draws: Mapping[str, Tensor], columns: tuple[str, ...]) -> Variables:
    """Draws of sites ``[draws, *shape]``, with the features' names where a dimension is as long as these."""
    return {
        site.name: (SAMPLE + dimensions(site.name, site.shape, columns), _array(draws[site.name])[None])
        for site in coordinates.sites
    }


def private_sites(result: Result, draws: Mapping[str, Mapping[str, Tensor]]) -> Group:
    """Draws of clients' own latents, one variable a site.

    Sites of the same shape in all clients get a dimension ``client``; latents by row lie along ``obs``, the clients'
    rows end to end; all others are flat, clients end to end, along ``<site>_element`` with labels ``client[index]``.
    """
    variables: Variables = {}
    coordinates: dict[str, Any] = {}
    names = {name for values in draws.values() for name in values}
    for site in sorted(names):
        parts = {client: _array(values[site]) for client, values in draws.items() if site in values}
        shapes = {part.shape[1:] for part in parts.values()}
        if site in result.by_row and _lies_along_rows(result, parts):
            value = np.concatenate(list(parts.values()), 1)
            variables[site] = ([*SAMPLE, "obs", *dimensions(site, value.shape[2:], result.columns)], value[None])
        elif len(shapes) == 1 and len(parts) == len(draws):
            value = np.stack(list(parts.values()), 1)
            variables[site] = ([*SAMPLE, "client", *dimensions(site, value.shape[2:], result.columns)], value[None])
            coordinates["client"] = np.array(list(parts), dtype=object)
        else:
            value = np.concatenate([part.reshape(len(part), -1) for part in parts.values()], 1)
            labels = [label for client, part in parts.items() for label in _labels(client, part.shape[1:])]
            variables[site] = ([*SAMPLE, f"{site}_element"], value[None])
            coordinates[f"{site}_element"] = np.array(labels, dtype=object)
    return Group(variables, coordinates)


def personal_sites(result: Result, num_samples: int, generator: torch.Generator) -> Group:
    """Draws of every client's personal posterior: ``personal_<site>`` along ``client``.

    Left out, with a warning, where they would take more than a gigabyte.
    """
    numbers = num_samples * len(result.personal) * result.posterior.coordinates.size
    if not result.personal or numbers > MOST_NUMBERS:
        if result.personal:
            logger.warning("the draws of %d personal posteriors are too many for one export; export the clients by "
                           "themselves, result.of_client(name)", len(result.personal))  # fmt: skip
        return Group({})
    draws = [posterior.sample(num_samples, generator) for posterior in result.personal.values()]
    variables: Variables = {}
    for site in result.posterior.coordinates.sites:
        name = f"personal_{site.name}"
        while name in result.posterior.site_names:
            name += "_"
        value = np.stack([_array(drawn[site.name]) for drawn in draws], 1)
        variables[name] = ([*SAMPLE, "client", *dimensions(site.name, site.shape, result.columns)], value[None])
    return Group(variables, {"client": np.array(list(result.personal), dtype=object)})


def sampled(value: Tensor) -> tuple[list[str], np.ndarray]:
    """One number a draw."""
    return SAMPLE, _array(value)[None]


def observed(site: str, value: Tensor, lead: int) -> tuple[list[str], np.ndarray]:
    """An observed site ``[rows, ...]``, with ``lead`` = 1 behind a dimension of draws."""
    more = [f"{site}_dim_{axis}" for axis in range(value.ndim - 1 - lead)]
    array = _array(value)
    return ([*SAMPLE, "obs", *more], array[None]) if lead else (["obs", *more], array)


def by_client(parts: list[dict[str, Tensor]], dim: int = 1) -> dict[str, Tensor]:
    """The clients' tensors end to end along their rows; only what all clients have."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name].detach().cpu() for part in parts], dim) for name in names}


def dataset(group: Group, common: Mapping[str, Any]) -> "xarray.Dataset":
    """A group with those of the coordinates that it uses; its own hide common ones of the same name."""
    import xarray

    used = {dim for dims, _ in group.variables.values() for dim in dims}
    coordinates = {
        name: value
        for name, value in (dict(common) | group.coordinates).items()
        if (value[0] if isinstance(value, tuple) else name) in used
    }
    return xarray.Dataset(dict(group.variables), coords=coordinates)


def _lies_along_rows(result: Result, parts: Mapping[str, np.ndarray]) -> bool:
    """Whether the site's first dimension is that of the rows, of every client."""
    rows = {client: batch.num_rows for client, batch in result.data.items()}
    fits = all(part.ndim > 1 and part.shape[1] == rows.get(client) for client, part in parts.items())
    return fits and list(parts) == list(rows) and len({part.shape[2:] for part in parts.values()}) == 1


def _labels(client: str, shape: tuple[int, ...]) -> list[str]:
    if not shape:
        return [client]
    return [f"{client}[{','.join(map(str, index))}]" for index in product(*map(range, shape))]


def _array(value: Tensor) -> np.ndarray:
    return value.detach().cpu().numpy()
