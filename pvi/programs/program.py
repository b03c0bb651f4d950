"""A Pyro program as pure functions of its latent values: log prior and log likelihood, safe under ``vmap``."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from pyro import poutine
from torch import Tensor

from pvi.families import Coordinates
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Rows, Values
from pvi.programs.sites import Site, Sites


class Program(NamedTuple):
    """A model, its sites, and the coordinates x of its shared latents."""

    model: Callable[..., Any]
    sites: Sites
    coordinates: Coordinates


def log_prior(program: Program, x: Tensor, batch: Batch) -> Tensor:
    """log p(x) of the shared latents in the unconstrained space, nats, Jacobian included; ``x [size]`` -> ``[]``."""
    values = program.coordinates.constrain(x)
    total = program.coordinates.log_abs_det_jacobian(x)
    for node in _nodes(program, values, batch, program.sites.shared).values():
        total = total + node["log_prob_sum"]
    return total


def log_likelihood(program: Program, x: Tensor, batch: Batch, rows: Tensor | None = None) -> Tensor:
    """log p(y | θ(x)) in nats, summed over all observed sites and rows; ``x [size]`` -> ``[]``.

    ``rows`` ``[b]`` gives the unbiased estimate n/b · Σ over these rows instead. A model whose plate subsamples is
    handed the rows through its plate and scales by itself; without ``rows`` its plate walks through all of them.
    """
    values = program.coordinates.constrain(x)
    plate = program.sites.subsampling
    if plate is not None:
        if rows is None:
            return _walk(program, values, batch)
        return _sum(_nodes(program, values, batch, program.sites.observed, rows))
    if rows is None:
        return _sum(_nodes(program, values, batch, program.sites.observed))
    total = _sum(_nodes(program, values, batch.take(rows), program.sites.observed))
    return batch.num_rows / rows.shape[0] * total


def pointwise_log_likelihood(program: Program, x: Tensor, batch: Batch) -> dict[str, Tensor]:
    """log p(y_i | θ(x)) in nats by observed site, each in the shape that the site's distribution gives."""
    nodes = _nodes(program, program.coordinates.constrain(x), batch, program.sites.observed)
    return {name: node["log_prob"] for name, node in nodes.items()}


def num_rows(program: Program, batch: Batch) -> int:
    """The rows a mini-batch is drawn from: those of the plate that subsamples, else those of the data."""
    return program.sites.subsampling[1] if program.sites.subsampling else batch.num_rows


def check_deterministic(program: Program, batch: Batch, client: str, like: Tensor) -> None:
    """Raises :class:`~pvi.programs.errors.ProgramError` where the likelihood is random once the latents are given."""
    x = torch.linspace(-0.5, 0.5, program.coordinates.size, dtype=like.dtype, device=like.device)
    values = []
    for seed in (0, 1):
        with seeded(seed, like.device), torch.no_grad():
            values.append(log_likelihood(program, x, batch))
    if not torch.equal(values[0].nan_to_num(), values[1].nan_to_num()):
        raise ProgramError(
            f"client {client!r}: the likelihood is {values[0].item():.6g}, then {values[1].item():.6g} for the same "
            "latents: the model draws random numbers outside pyro.sample (torch.randn, dropout, ...)"
        )


def _sum(nodes: Mapping[str, Any]) -> Tensor:
    return torch.stack([node["log_prob_sum"].reshape(()) for node in nodes.values()]).sum()


def _nodes(
    program: Program, values: Mapping[str, Tensor], batch: Batch, wanted: tuple[Site, ...], rows: Tensor | None = None
) -> dict[str, Any]:
    names = {site.name for site in wanted}
    dtype = next(iter(values.values())).dtype
    # Plates that subsample never draw from the global random state: where no rows are given, the first ones serve.
    if program.sites.subsampling is not None and rows is None:
        rows = torch.arange(program.sites.subsampling[2])
    with running(dtype), Values(values), Rows(rows if rows is not None else torch.arange(0)):
        trace = poutine.trace(program.model).get_trace(*batch.args, **batch.kwargs)
        trace.compute_log_prob(lambda name, node: name in names)
    return {name: trace.nodes[name] for name in trace.nodes if name in names}


def _walk(program: Program, values: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """The exact likelihood of a subsampling model: chunks of b rows, the last one filled up and counted in part."""
    assert program.sites.subsampling is not None
    plate, size, length = program.sites.subsampling
    parts: list[Tensor] = []
    for start in range(0, size, length):
        fresh = min(length, size - start)
        rows = torch.arange(size - length if fresh < length else start, min(start + length, size))
        for node in _nodes(program, values, batch, program.sites.observed, rows).values():
            dims = [frame.dim for frame in node["cond_indep_stack"] if frame.name == plate]
            if dims:
                parts.append(node["log_prob"].narrow(dims[0], length - fresh, fresh).sum() * (length / size))
            elif start == 0:
                parts.append(node["log_prob_sum"])
    return torch.stack(parts).sum()
