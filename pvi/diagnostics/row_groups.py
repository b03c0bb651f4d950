"""What an export says about the clients' rows: likelihood, predictions, and the rows themselves, end to end."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pyro.infer import Predictive
from torch import Tensor

from pvi.diagnostics.labels import dimensions
from pvi.diagnostics.private_draws import Drawn
from pvi.diagnostics.variables import Group, Variables, by_client, observed
from pvi.objectives import each
from pvi.programs.batch import Batch, is_rows
from pvi.programs.context import running, seeded
from pvi.programs.observations import observations, without_observations
from pvi.programs.predictive import pointwise
from pvi.programs.program import Program, log_likelihood, log_prior
from pvi.programs.sites import Sites, argument_names, discover
from pvi.result import Result


def find_sites(result: Result) -> dict[str, Sites]:
    """Each client's sites; empty where the result has no model, no rows, or a plate that draws its own rows."""
    if result.model is None:
        return {}
    found = {name: discover(result.model, batch, name) for name, batch in result.data.items()}
    return {} if any(sites.subsampling for sites in found.values()) else found


def row_coordinates(result: Result) -> dict[str, Any]:
    """``obs``, and each row's ``client`` and place there."""
    sizes = {name: batch.num_rows for name, batch in result.data.items()}
    return {
        "obs": np.arange(sum(sizes.values())),
        "client": ("obs", np.repeat(np.array(list(sizes), dtype=object), list(sizes.values()))),
        "row": ("obs", np.concatenate([np.arange(size) for size in sizes.values()])),
    }


def log_joint(result: Result, drawn: Drawn, sites: Mapping[str, Sites]) -> Tensor:
    """log p(θ) + Σ_m log p(y_m, z_m | θ) in nats at every draw, ``[n]``.

    p(θ) is the model's own prior, in the family or not; discrete private latents are summed out.
    """
    assert result.model is not None
    shared = result.posterior.coordinates
    x = shared.unconstrain(drawn.shared).to(result.posterior.natural)
    client, rows = next(iter(result.data.items()))
    first = Program(result.model, sites[client], shared)
    with torch.no_grad():
        total = each(lambda x: log_prior(first, x, rows), x) - shared.log_abs_det_jacobian(x)
        for client in result.data:
            local = result.local[client].coordinates if client in result.local else shared
            program = Program(result.model, sites[client], local)
            total = total + _log_likelihood(program, drawn.of(client), result.data[client], x)
    return total


def _log_likelihood(program: Program, draws: Mapping[str, Tensor], batch: Batch, like: Tensor) -> Tensor:
    """log p(y_m, z_m | θ) in nats at every draw, a density of the values of z_m."""
    x = program.coordinates.unconstrain(draws).to(like)
    found = each(lambda x: log_likelihood(program, x, batch), x, batch.num_rows)
    pieces, own = program.coordinates.pieces(x), {site.name for site in program.sites.private}
    for site in program.coordinates.sites:
        if site.name in own:
            found = found - site.log_abs_det_jacobian(pieces[site.name])
    return found


def row_groups(result: Result, drawn: Drawn, seed: int) -> dict[str, Group]:
    """The groups of rows; predictions where the model can be run without its observations."""
    assert result.model is not None
    model, data = result.model, result.data
    likelihood = by_client([pointwise(model, result.observed, drawn.of(name), batch) for name, batch in data.items()])
    found = [observations(model, batch) for batch in data.values()]
    seen = by_client([{name: site.value for name, site in sites.items()} for sites in found], dim=0)
    groups = {
        "log_likelihood": Group({name: observed(name, value, 1) for name, value in likelihood.items()}),
        "observed_data": Group({name: observed(name, value, 0) for name, value in seen.items()}),
    }
    inputs = [without_observations(batch, sites) for batch, sites in zip(data.values(), found, strict=True)]
    # Where nothing is given but the observations, the model cannot know how many rows there are to predict.
    bare = {
        name: batch
        for name, batch in zip(data, inputs, strict=True)
        if batch is not None and any(value is not None for value in batch.values())
    }
    if len(bare) < len(inputs):
        return groups
    predicted = by_client([_predict(result, drawn.of(name), batch, seed) for name, batch in bare.items()])
    groups["posterior_predictive"] = Group({name: observed(name, value, 1) for name, value in predicted.items()})
    arguments = by_client([_arguments(result, batch) for batch in bare.values()], dim=0)
    constant: Variables = {
        name: (["obs", *dimensions(name, value.shape[1:], result.columns)], value.numpy())
        for name, value in arguments.items()
    }
    if constant:
        groups["constant_data"] = Group(constant)
    return groups


def _predict(result: Result, draws: dict[str, Tensor], batch: Batch, seed: int) -> dict[str, Tensor]:
    """New outcomes of a client's rows at these draws, {site: ``[draws, rows, ...]``}."""
    natural = result.posterior.natural
    with running(natural.dtype), seeded(seed, natural.device), torch.no_grad():
        return dict(Predictive(result.model, draws, return_sites=result.observed)(*batch.args, **batch.kwargs))


def _arguments(result: Result, batch: Batch) -> dict[str, Tensor]:
    """The arguments that have rows, by name."""
    assert result.model is not None
    names = argument_names(result.model)
    labels = [names[index] if index < len(names) else f"argument_{index}" for index in range(len(batch.args))]
    return {name: value for name, value in zip([*labels, *batch.kwargs], batch.values(), strict=True) if is_rows(value)}
