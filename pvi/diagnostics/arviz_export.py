"""Results for ArviZ: an xarray ``DataTree`` with named dimensions, units and the clients' rows end to end."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pvi.diagnostics.private_draws import draw
from pvi.diagnostics.row_groups import find_sites, log_joint, row_coordinates, row_groups
from pvi.diagnostics.variables import Group, Variables, dataset, personal_sites, private_sites, sampled, shared_sites
from pvi.result import Result

if TYPE_CHECKING:
    import xarray


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

    ``posterior``: the shared sites, and each client's own at the same draws, along ``client`` (see
    :func:`pvi.diagnostics.variables.private_sites`); a dimension as long as the features is called ``feature`` and has
    their names. Personal posteriors are in it as ``personal_<site>`` along ``client``; ``log_q`` and whatever is said
    of rows then is of the global one, and of a client's own in what ``result.of_client(name).to_arviz()`` gives.
    ``prior``: the shared sites, from the member of the family that stands for the model's prior.
    ``sample_stats``: ``log_q`` (nats), the density of all other latents in ``posterior``, and ``lp`` = log p(θ) + Σ_m
    log p(y_m, z_m | θ) where the data are there. Where the result has its model and data also ``log_likelihood``,
    ``observed_data``, ``constant_data`` (the model's other arguments) and ``posterior_predictive``: clients end to
    end along ``obs``, with coordinates ``client`` and ``row``. These four, and latents with one value a row, are left
    out for models whose plate subsamples, and with ``rows=False``.
    """
    import xarray

    sites = find_sites(result) if rows else {}
    drawn = draw(result, num_samples, _generator(result, seed), () if sites else result.by_row)
    prior = result.prior.sample(num_samples, _generator(result, seed + 1))
    shared = result.posterior.coordinates
    private = private_sites(result, drawn.private)
    personal = personal_sites(result, num_samples, _generator(result, seed + 2))
    own = Group(private.variables | personal.variables, private.coordinates | personal.coordinates)
    stats: Variables = {"log_q": sampled(drawn.log_q)}
    groups = {
        "posterior": Group(shared_sites(shared, drawn.shared, result.columns) | own.variables, own.coordinates),
        "prior": Group(shared_sites(shared, prior, result.columns)),
        "sample_stats": Group(stats),
    }
    places: dict[str, Any] = {}
    if sites:
        stats["lp"] = sampled(log_joint(result, drawn, sites))
        groups |= row_groups(result, drawn, seed)
        places = row_coordinates(result)
    common = {"chain": [0], "draw": np.arange(num_samples), "feature": list(result.columns)} | places
    tree = xarray.DataTree.from_dict({name: dataset(group, common) for name, group in groups.items()})
    for name in {"log_likelihood", "sample_stats"} & set(groups):
        for variable in tree[name].data_vars.values():
            variable.attrs["units"] = "nats"
    tree.attrs.update(_attributes(result))
    tree["sample_stats"].attrs.update(_attributes(result))
    return tree


def _attributes(result: Result) -> dict[str, Any]:
    """What is said of the whole; dictionaries and lists as JSON, since netCDF has neither."""
    from pvi import __version__

    said = {
        "inference_library": "pvi",
        "inference_library_version": __version__,
        "model": result.model_name,
        "elbo": result.elbo,
        "elbo_units": "nats",
        "elbo_name": result.elbo_name,
        "settings": json.dumps(dict(result.settings)),
        "clients": json.dumps(list(result.factors)),
    }
    if result.hyperparameters:
        said["hyperparameters"] = json.dumps({name: value.tolist() for name, value in result.hyperparameters.items()})
        said["learned"] = json.dumps(list(result.history[-1].hyperparameters))
    return said


def _generator(result: Result, seed: int) -> torch.Generator:
    return torch.Generator(device=result.posterior.natural.device).manual_seed(seed)
