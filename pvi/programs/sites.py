"""What a Pyro program says about itself in one trace: names, supports, shapes, plates, who owns a site."""

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import pyro
import torch
from pyro import poutine
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.constraints import Constraint

from pvi.programs.batch import Batch
from pvi.programs.checks import check_site, kind
from pvi.programs.context import running, seeded
from pvi.programs.errors import ProgramError


class Ownership(Enum):
    """Who holds the posterior of a site."""

    SHARED = "shared"
    PRIVATE = "private"
    OBSERVED = "observed"


class Site(NamedTuple):
    """One sample site. ``shape`` is the full shape of its value; ``plates`` the names of the plates around it.

    ``by_row`` says that one of these plates is one of rows: one value a row, not one a client.
    """

    name: str
    ownership: Ownership
    shape: tuple[int, ...]
    support: Constraint
    distribution: str
    plates: tuple[str, ...]
    by_row: bool = False
    dtype: torch.dtype = torch.float32

    @property
    def is_discrete(self) -> bool:
        """Whether the site's values are counted, not measured."""
        return bool(self.support.is_discrete)


class Parameter(NamedTuple):
    """One ``pyro.param`` of a model: a hyperparameter with its first value and its constraint."""

    name: str
    value: Tensor
    constraint: Constraint


class Sites(NamedTuple):
    """All sites of a program, and the plate (name, size, subsample size) that draws its own rows, if any.

    ``private`` are the continuous latents of this client; ``enumerated`` its discrete ones, which are summed out.
    ``plate_nesting`` is the number of batch dimensions that plates use.
    """

    shared: tuple[Site, ...]
    private: tuple[Site, ...]
    observed: tuple[Site, ...]
    subsampling: tuple[str, int, int] | None
    enumerated: tuple[Site, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    plate_nesting: int = 0


def argument_names(model: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a model's positional arguments, as far as its signature tells."""
    try:
        parameters = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def discover(model: Callable[..., Any], batch: Batch, client: str) -> Sites:
    """Trace the model once on a client's data.

    A latent is private where it says ``infer={"pvi": "private"}`` or lies inside a plate of rows, which holds an
    observed site and has an element a row (unless it says ``infer={"pvi": "shared"}``); all other latents are shared.
    Discrete private latents are enumerated.

    Raises :class:`ProgramError` where the model fails, observes nothing, has a discrete latent with infinitely many
    values, an observation outside its support, or two plates that subsample.
    """
    nodes = _trace(model, batch, client)
    parameters = tuple(_parameter(name, node) for name, node in nodes.items() if node["type"] == "param")
    samples = {name: node for name, node in nodes.items() if is_random(node)}
    row_plates = {
        frame.name
        for node in samples.values()
        if node["is_observed"]
        for frame in node["cond_indep_stack"]
        if (frame.full_size or frame.size) == batch.num_rows
    }
    sites = [_site(name, node, row_plates) for name, node in samples.items()]
    observed = tuple(site for site in sites if site.ownership is Ownership.OBSERVED)
    if not observed:
        raise ProgramError(
            "the model observes nothing: no pyro.sample site has obs=...; pass the data to the model and write "
            'for example pyro.sample("y", dist.Bernoulli(logits=f), obs=y). Is each client\'s data complete? Two '
            "clients with features and outcomes are [(x_1, y_1), (x_2, y_2)]"
        )
    for name, node in samples.items():
        check_site(name, node, client)
    private = tuple(site for site in sites if site.ownership is Ownership.PRIVATE)
    subsampling = _subsampling(nodes, batch.num_rows, client)
    inside = [site.name for site in private if subsampling is not None and subsampling[0] in site.plates]
    if inside:
        raise ProgramError(
            f"sites {inside} have one private value a row, but their plate visits only some rows a run; leave "
            "subsample_size out"
        )
    dims = [frame.dim for node in samples.values() for frame in node["cond_indep_stack"] if frame.vectorized]
    return Sites(
        shared=tuple(site for site in sites if site.ownership is Ownership.SHARED),
        private=tuple(site for site in private if not site.is_discrete),
        observed=observed,
        subsampling=subsampling,
        enumerated=tuple(site for site in private if site.is_discrete),
        parameters=parameters,
        plate_nesting=-min(dims, default=0),
    )


def _parameter(name: str, node: Any) -> Parameter:
    constraint = node["kwargs"].get("constraint", constraints.real)
    return Parameter(name, node["value"].detach().clone(), constraint)


def _trace(model: Callable[..., Any], batch: Batch, client: str) -> dict[str, Any]:
    try:
        with pyro.get_param_store().scope(), running(batch.dtype), seeded(0, batch.device):
            trace = poutine.trace(model).get_trace(*batch.args, **batch.kwargs)
    except ProgramError:
        raise
    except Exception as error:
        shapes = [tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in batch.values()]
        raise ProgramError(
            f"client {client!r}: the model failed on its data (arguments {shapes}, keywords {list(batch.kwargs)}): "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error
    return dict(trace.nodes)


def is_random(node: Any) -> bool:
    """Whether a trace's node is a sample site of the program itself: no plate, no deterministic."""
    return (
        node["type"] == "sample"
        and not isinstance(node["fn"], _Subsample)
        and not node["infer"].get("_deterministic", False)
    )


def _site(name: str, node: Any, row_plates: set[str]) -> Site:
    plates = tuple(frame.name for frame in node["cond_indep_stack"])
    said = node["infer"].get("pvi")
    if said not in (None, "private", "shared"):
        raise ProgramError(f'site {name!r}: infer={{"pvi": {said!r}}} is neither "private" nor "shared"')
    if node["is_observed"]:
        ownership = Ownership.OBSERVED
    elif said == "private" or (said is None and row_plates.intersection(plates)):
        ownership = Ownership.PRIVATE
    else:
        ownership = Ownership.SHARED
    fn, value = node["fn"], node["value"]
    by_row = bool(row_plates.intersection(plates))
    return Site(name, ownership, tuple(value.shape), fn.support, kind(fn), plates, by_row, value.dtype)


def _subsampling(nodes: dict[str, Any], rows: int, client: str) -> tuple[str, int, int] | None:
    found = [
        (name, node["fn"].size, node["fn"].subsample_size)
        for name, node in nodes.items()
        if node["type"] == "sample"
        and isinstance(node["fn"], _Subsample)
        and node["fn"].subsample_size is not None
        and node["fn"].subsample_size < node["fn"].size
    ]
    if len(found) > 1:
        raise ProgramError(f"plates {[name for name, *_ in found]} both subsample; only one may")
    if found and found[0][1] != rows:
        raise ProgramError(
            f"client {client!r}: plate {found[0][0]!r} has size {found[0][1]} but the client has {rows} rows; its "
            "likelihood would be scaled by the wrong number: write pyro.plate(name, len(x), subsample_size=...)"
        )
    return found[0] if found else None
