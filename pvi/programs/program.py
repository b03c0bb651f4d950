"""A Pyro program as pure functions of its latent values: log prior and log likelihood, safe under ``vmap``."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from pyro import poutine
from torch import Tensor

from pvi.families import Coordinates, SiteCoordinates
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.enumeration import summed_out
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Placeholders, Rows, Values
from pvi.programs.sites import Sites


class Program(NamedTuple):
    """A model, its sites, and the coordinates x of its latents: the shared ones, then the client's own.

    ``counted`` names the sites whose log densities make up the likelihood; ``None`` stands for all that is not
    shared: p(y, z | θ) with z the client's own latents. Discrete ones of these are summed out.
    """

    model: Callable[..., Any]
    sites: Sites
    coordinates: Coordinates
    counted: frozenset[str] | None = None

    @property
    def shared(self) -> Coordinates:
        """The coordinates of the shared latents alone."""
        names = {site.name for site in self.sites.shared}
        return Coordinates(tuple(site for site in self.coordinates.sites if site.name in names))

    @property
    def likelihood_sites(self) -> frozenset[str]:
        """The names of the sites that make up the likelihood."""
        if self.counted is not None:
            return self.counted
        sites = (*self.sites.observed, *self.sites.private, *self.sites.enumerated)
        return frozenset(site.name for site in sites)


def log_prior(program: Program, x: Tensor, batch: Batch, offset: float = 0.0) -> Tensor:
    """log p(x) of the shared latents in their coordinates, nats, Jacobian included; ``x [size]`` -> ``[]``.

    A client's own latents stand at placeholders (``offset`` moves them), on which it must not depend.
    """
    shared = program.shared
    total = shared.log_abs_det_jacobian(x)
    names = frozenset(shared.names)
    for node in site_nodes(program, shared.constrain(x), batch, names, offset=offset).values():
        total = total + node["log_prob_sum"]
    return total


def log_private_prior(program: Program, x: Tensor, batch: Batch) -> Tensor:
    """log p(z | θ) of the client's continuous latents in their coordinates, nats; ``x [size]`` -> ``[]``."""
    own = frozenset(site.name for site in program.sites.private)
    return log_likelihood(program._replace(counted=own), x, batch)


def log_likelihood(program: Program, x: Tensor, batch: Batch, rows: Tensor | None = None) -> Tensor:
    """log p(y | θ(x)) in nats, summed over all observed sites and rows; ``x [size]`` -> ``[]``.

    A client's own continuous latents count with their densities (see :attr:`Program.counted`), its discrete ones are
    summed out. ``rows`` ``[b]`` gives the unbiased estimate n/b · Σ over these rows instead. A model whose plate
    subsamples is handed the rows through its plate and scales by itself; without ``rows`` its plate walks through all
    of them.
    """
    by_row = [site.name for site in program.sites.private if site.by_row]
    if rows is not None and by_row:
        raise ProgramError(
            f"sites {by_row} have one private value a row; mini-batches would need some of these: use all rows a step"
        )
    values = program.coordinates.constrain(x)
    names = program.likelihood_sites
    counted = tuple(site for site in program.coordinates.sites if site.name in names)
    change = jacobian(program.coordinates, x, counted)
    if program.sites.enumerated and any(site.name in names for site in program.sites.enumerated):
        return _enumerated(program, values, batch, names, rows, x.dtype) + change
    return _counted(program, values, batch, names, rows) + change


def _enumerated(
    program: Program,
    values: Mapping[str, Tensor],
    batch: Batch,
    names: frozenset[str],
    rows: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    nesting = program.sites.plate_nesting
    if rows is None:
        return summed_out(program.model, values, batch, names, nesting, dtype)
    alone = [site.name for site in program.sites.enumerated if not site.by_row]
    if alone:
        raise ProgramError(
            f"sites {alone} are discrete and have one value a client: a sum over their values cannot be estimated from "
            "mini-batches; use all rows a step"
        )
    own = names.intersection(counted_once(program))
    total = summed_out(program.model, values, batch.take(rows), names - own, nesting, dtype)
    once = _counted(program, values, batch, own, None) if own else 0.0
    return batch.num_rows / rows.shape[0] * total + once


def counted_once(program: Program) -> frozenset[str]:
    """Latents that count once however many rows there are."""
    return frozenset(site.name for site in (*program.sites.private, *program.sites.shared) if not site.by_row)


def jacobian(coordinates: Coordinates, x: Tensor, sites: tuple[SiteCoordinates, ...]) -> Tensor:
    """Σ log |det| of these sites' transforms at x ``[size]``."""
    pieces = coordinates.pieces(x)
    total = x.new_zeros(())
    for site in sites:
        total = total + site.log_abs_det_jacobian(pieces[site.name])
    return total


def _counted(
    program: Program, values: Mapping[str, Tensor], batch: Batch, names: frozenset[str], rows: Tensor | None
) -> Tensor:
    plate = program.sites.subsampling
    if plate is not None:
        if rows is None:
            return _walk(program, values, batch, names)
        return _sum(site_nodes(program, values, batch, names, rows))
    if rows is None:
        return _sum(site_nodes(program, values, batch, names))
    nodes, once = site_nodes(program, values, batch.take(rows), names), counted_once(program)
    scale = batch.num_rows / rows.shape[0]
    parts = [(1.0 if name in once else scale) * node["log_prob_sum"].reshape(()) for name, node in nodes.items()]
    return torch.stack(parts).sum()


def pointwise_log_likelihood(program: Program, x: Tensor, batch: Batch) -> dict[str, Tensor]:
    """log p(y_i | θ(x)) in nats by observed site, each in the shape that the site's distribution gives."""
    names = frozenset(site.name for site in program.sites.observed)
    nodes = site_nodes(program, program.coordinates.constrain(x), batch, names)
    return {name: node["log_prob"] for name, node in nodes.items()}


def num_rows(program: Program, batch: Batch) -> int:
    """The rows a mini-batch is drawn from: those of the plate that subsamples, else those of the data."""
    return program.sites.subsampling[1] if program.sites.subsampling else batch.num_rows


def check_prior_alone(program: Program, batch: Batch, x: Tensor) -> None:
    """Raises :class:`~pvi.programs.errors.ProgramError` where the shared prior depends on a client's own latents.

    ``x [size]`` is a point of the shared coordinates.
    """
    if not program.sites.private and not program.sites.enumerated:
        return
    here, there = log_prior(program, x, batch), log_prior(program, x, batch, offset=0.7)
    if not torch.isclose(here, there, rtol=1e-6):
        own = [site.name for site in (*program.sites.private, *program.sites.enumerated)]
        raise ProgramError(
            f"the prior of the shared sites depends on the private sites {own}; shared latents come first in a model: "
            "let the private ones depend on them"
        )


def check_deterministic(program: Program, batch: Batch, client: str, x: Tensor) -> None:
    """Raises :class:`~pvi.programs.errors.ProgramError` where the likelihood is random at given ``x [size]``."""
    values = []
    for seed in (0, 1):
        with seeded(seed, x.device), torch.no_grad():
            values.append(log_likelihood(program, x, batch))
    if not torch.equal(values[0].nan_to_num(), values[1].nan_to_num()):
        raise ProgramError(
            f"client {client!r}: the likelihood is {values[0].item():.6g}, then {values[1].item():.6g} for the same "
            "latents: the model draws random numbers outside pyro.sample (torch.randn, dropout, ...)"
        )


def _sum(nodes: Mapping[str, Any]) -> Tensor:
    return torch.stack([node["log_prob_sum"].reshape(()) for node in nodes.values()]).sum()


def site_nodes(
    program: Program,
    values: Mapping[str, Tensor],
    batch: Batch,
    names: frozenset[str],
    rows: Tensor | None = None,
    offset: float = 0.0,
) -> dict[str, Any]:
    """The named sites of a trace at these values, their log densities computed."""
    dtype = next((value.dtype for value in values.values() if value.is_floating_point()), batch.dtype)
    device = next(iter(values.values())).device
    # Latents without a value are ones on which the wanted densities do not depend: nothing is drawn at random.
    with (
        running(dtype),
        Placeholders(device, offset),
        Values(values),
        Rows(rows),
    ):
        trace = poutine.trace(program.model).get_trace(*batch.args, **batch.kwargs)
        trace.compute_log_prob(lambda name, node: name in names)
    return {name: trace.nodes[name] for name in trace.nodes if name in names}


def _walk(program: Program, values: Mapping[str, Tensor], batch: Batch, names: frozenset[str]) -> Tensor:
    """The exact likelihood of a subsampling model: chunks of b rows, the last one filled up and counted in part."""
    assert program.sites.subsampling is not None
    plate, size, length = program.sites.subsampling
    parts: list[Tensor] = []
    for start in range(0, size, length):
        fresh = min(length, size - start)
        rows = torch.arange(size - length if fresh < length else start, min(start + length, size))
        for node in site_nodes(program, values, batch, names, rows).values():
            dims = [frame.dim for frame in node["cond_indep_stack"] if frame.name == plate]
            if dims:
                parts.append(node["log_prob"].narrow(dims[0], length - fresh, fresh).sum() * (length / size))
            elif start == 0:
                parts.append(node["log_prob_sum"])
    return torch.stack(parts).sum()
