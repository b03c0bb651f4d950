"""Results for ArviZ: an xarray ``DataTree`` with named dimensions, units and the clients' rows end to end."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pvi.diagnostics.labels import dimensions
from pvi.programs.batch import Batch, is_rows
from pvi.programs.observations import observations, without_observations
from pvi.programs.sites import argument_names, discover
from pvi.result import Result

if TYPE_CHECKING:
    import xarray

Variables = dict[str, tuple[list[str], np.ndarray]]
SAMPLE = ["chain", "draw"]


def to_arviz(result: Result, num_samples: int = 1000, seed: int = 0) -> Any:
    """The result as ArviZ takes it: ``InferenceData`` on ArviZ 0.x, the ``DataTree`` itself from 1.0 on.

    See :func:`to_datatree` for what is in it. The draws are independent: r-hat and effective sample sizes mean
    nothing here, so use ``az.summary(..., kind="stats")``.
    """
    with warnings.catch_warnings():
        # ArviZ 0.x announces its next version at every import.
        warnings.simplefilter("ignore", FutureWarning)
        import arviz as az  # takes seconds

    tree = to_datatree(result, num_samples, seed)
    return az.from_datatree(tree) if az.__version__.startswith("0.") else tree


def to_netcdf(result: Result, path: str | Path, num_samples: int = 1000, seed: int = 0, *, rows: bool = True) -> None:
    """Write the tree to a netCDF file, which any ArviZ reads: ``arviz.from_netcdf(path)``.

    ``rows=False`` leaves out whatever has something to do with single rows of the clients' data.
    """
    tree = to_datatree(result, num_samples, seed, rows=rows)
    # Predictions of a binary outcome are zeros and ones, design matrices repeat themselves.
    compressed = {"zlib": True, "complevel": 2}
    encoding = {f"/{name}": dict.fromkeys(map(str, node.data_vars), compressed) for name, node in tree.children.items()}
    tree.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def to_datatree(result: Result, num_samples: int = 1000, seed: int = 0, *, rows: bool = True) -> "xarray.DataTree":
    """Groups of draws and data, all draws with ``chain`` (one) and ``draw`` first.

    ``posterior``, ``prior``: the shared sites; a dimension as long as the features is called ``feature`` and has their
    names. ``sample_stats``: ``log_q`` (nats), and ``lp`` = log prior + log likelihood where the data are there. Where
    the result has its model and data also ``log_likelihood``, ``observed_data``, ``constant_data`` (the model's other
    arguments) and ``posterior_predictive``: clients end to end along ``obs``, with coordinates ``client`` and ``row``.
    These four are left out for models whose plate subsamples, and with ``rows=False``.
    """
    import xarray

    draws = result.posterior.sample(num_samples, _generator(result, seed))
    prior = result.prior.sample(num_samples, _generator(result, seed + 1))
    stats: Variables = {"log_q": _sampled(result.posterior.log_prob(draws))}
    groups: dict[str, Variables] = {
        "posterior": _sites(result, draws),
        "prior": _sites(result, prior),
        "sample_stats": stats,
    }
    places: dict[str, Any] = {}
    if rows and result.model is not None and result.data and not _subsamples(result):
        likelihood = _by_client(
            [
                result.log_likelihood(*batch.args, num_samples=num_samples, seed=seed, **batch.kwargs)
                for batch in result.data.values()
            ]
        )
        groups["log_likelihood"] = {name: _observed(name, value, 1) for name, value in likelihood.items()}
        total = sum(value.reshape(num_samples, -1).sum(-1) for value in likelihood.values())
        stats["lp"] = _sampled(result.prior.log_prob(draws).cpu() + total)
        groups |= _data_groups(result, num_samples, seed)
        places = _row_coordinates(result)
    coordinates = {"chain": [0], "draw": np.arange(num_samples), "feature": list(result.columns)} | places
    tree = xarray.DataTree.from_dict(
        {name: _dataset(name, variables, coordinates) for name, variables in groups.items()}
    )
    tree.attrs.update(_attributes(result))
    tree["sample_stats"].attrs.update(_attributes(result))
    return tree


def _data_groups(result: Result, num_samples: int, seed: int) -> dict[str, Variables]:
    """Observed and constant data, and predictions where the model can be run without its observations."""
    assert result.model is not None
    found = [observations(result.model, batch) for batch in result.data.values()]
    seen = _by_client([{name: site.value for name, site in sites.items()} for sites in found], dim=0)
    groups = {"observed_data": {name: _observed(name, value, 0) for name, value in seen.items()}}
    inputs = [without_observations(batch, sites) for batch, sites in zip(result.data.values(), found, strict=True)]
    bare = [batch for batch in inputs if batch is not None]
    if len(bare) < len(inputs):
        return groups
    predicted = _by_client(
        [result.predict(*batch.args, num_samples=num_samples, seed=seed, **batch.kwargs) for batch in bare]
    )
    groups["posterior_predictive"] = {name: _observed(name, value, 1) for name, value in predicted.items()}
    arguments = _by_client([_arguments(result, batch) for batch in bare], dim=0)
    constant = {}
    for name, value in arguments.items():
        constant[name] = (["obs", *dimensions(name, value.shape[1:], result.columns)], value.numpy())
    if constant:
        groups["constant_data"] = constant
    return groups


def _arguments(result: Result, batch: Batch) -> dict[str, Tensor]:
    """The arguments that have rows, by name."""
    assert result.model is not None
    names = argument_names(result.model)
    labels = [names[index] if index < len(names) else f"argument_{index}" for index in range(len(batch.args))]
    return {name: value for name, value in zip([*labels, *batch.kwargs], batch.values(), strict=True) if is_rows(value)}


def _by_client(parts: list[dict[str, Tensor]], dim: int = 1) -> dict[str, Tensor]:
    """The clients' tensors end to end along their rows; only what all clients have."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name].detach().cpu() for part in parts], dim) for name in names}


def _sites(result: Result, draws: dict[str, Tensor]) -> Variables:
    found = {}
    for site in result.posterior.coordinates.sites:
        dims = dimensions(site.name, site.shape, result.columns)
        found[site.name] = (SAMPLE + dims, draws[site.name].detach().cpu().numpy()[None])
    return found


def _sampled(value: Tensor) -> tuple[list[str], np.ndarray]:
    return SAMPLE, value.detach().cpu().numpy()[None]


def _observed(site: str, value: Tensor, lead: int) -> tuple[list[str], np.ndarray]:
    """An observed site ``[rows, ...]``, with ``lead`` = 1 behind a dimension of draws."""
    more = [f"{site}_dim_{axis}" for axis in range(value.ndim - 1 - lead)]
    array = value.numpy()
    return ([*SAMPLE, "obs", *more], array[None]) if lead else (["obs", *more], array)


def _row_coordinates(result: Result) -> dict[str, Any]:
    sizes = {name: batch.num_rows for name, batch in result.data.items()}
    return {
        "obs": np.arange(sum(sizes.values())),
        "client": ("obs", np.repeat(np.array(list(sizes), dtype=object), list(sizes.values()))),
        "row": ("obs", np.concatenate([np.arange(size) for size in sizes.values()])),
    }


def _dataset(group: str, variables: Variables, coordinates: dict[str, Any]) -> "xarray.Dataset":
    import xarray

    used = {dim for dims, _ in variables.values() for dim in dims}
    mine = {
        name: value for name, value in coordinates.items() if (value[0] if isinstance(value, tuple) else name) in used
    }
    dataset = xarray.Dataset(dict(variables), coords=mine)
    if group in ("log_likelihood", "sample_stats"):
        for variable in dataset.data_vars.values():
            variable.attrs["units"] = "nats"
    return dataset


def _attributes(result: Result) -> dict[str, Any]:
    from pvi import __version__

    return {
        "inference_library": "pvi",
        "inference_library_version": __version__,
        "model": result.model_name,
        "elbo": result.elbo,
        "elbo_units": "nats",
        "settings": json.dumps(dict(result.settings)),
        "clients": json.dumps(list(result.factors)),
    }


def _subsamples(result: Result) -> bool:
    assert result.model is not None
    return any(discover(result.model, batch, name).subsampling for name, batch in result.data.items())


def _generator(result: Result, seed: int) -> torch.Generator:
    return torch.Generator(device=result.posterior.natural.device).manual_seed(seed)
