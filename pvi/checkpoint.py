"""Results on disk: natural parameters as safetensors, everything else as JSON; no pickles, no client's rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch.distributions import constraints
from torch.distributions.constraints import Constraint

from pvi.client import ClientInfo
from pvi.factors import Factor
from pvi.families import Coordinates, DiagonalGaussian, Family, FullGaussian, Product, site_coordinates
from pvi.history import Round
from pvi.posterior import Posterior
from pvi.programs.names import ModelNameError, resolve_model
from pvi.result import Result
from pvi.solvers import SolverInfo

FORMAT = 1
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


def save(result: Result, path: Path) -> None:
    """Write ``posterior.safetensors``, ``factors.safetensors`` and ``result.json`` into the folder ``path``."""
    coordinates = [
        {"name": site.name, "shape": list(site.shape), "support": constraint_to_json(site.support, site.name)}
        for site in result.posterior.coordinates.sites
    ]
    family = result.posterior.family
    members = [
        {"name": name, "family": type(member).__name__, "size": member.size}
        for name, member in zip(family.names, family.members, strict=True)
    ]
    description = {
        "format": FORMAT,
        "model": result.model_name,
        "observed": list(result.observed),
        "columns": list(result.columns),
        "settings": dict(result.settings),
        "sites": coordinates,
        "members": members,
        "clients": list(result.factors),
        "history": [history_to_json(record) for record in result.history],
    }
    path.mkdir(parents=True, exist_ok=True)
    tensors = {"posterior": result.posterior.natural, "prior": result.prior.natural}
    _write(tensors, path / "posterior.safetensors")
    factors: dict[str, torch.Tensor] = {}
    for index, factor in enumerate(result.factors.values()):
        factors[f"{index}.natural"] = factor.natural
        factors[f"{index}.log_scale"] = factor.log_scale
    _write(factors, path / "factors.safetensors")
    (path / "result.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


def _write(tensors: dict[str, torch.Tensor], path: Path) -> None:
    # Copies, since safetensors refuses shared memory (q is p before the first update); bytes, since its own files
    # are unreadable for others whatever the umask says.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    path.write_bytes(serialise(copies))


def load(path: str | Path, model: Callable[..., Any] | str | None = None) -> Result:
    """Read what :meth:`pvi.result.Result.save` wrote.

    The model is found by the name it was fitted under (a bundled model, an import path, a file) or given here;
    without it the posterior is whole but ``predict`` is not available. Raises :class:`CheckpointError`.
    """
    folder = Path(path)
    try:
        description = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "posterior.safetensors")
        parts = load_file(folder / "factors.safetensors")
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} holds no saved result: {error.filename} is missing") from error
    except (json.JSONDecodeError, UnicodeDecodeError, SafetensorError) as error:
        raise CheckpointError(f"{folder} is damaged and cannot be read: {error}") from error
    if description.get("format") != FORMAT:
        raise CheckpointError(f"{folder} has format {description.get('format')}, this version reads {FORMAT}")
    members = description["members"]
    unknown = sorted({member["family"] for member in members} - set(FAMILIES))
    if unknown:
        raise CheckpointError(f"{folder} needs the family {', '.join(map(repr, unknown))}, which this version lacks")
    family = Product(
        tuple(member["name"] for member in members),
        tuple(FAMILIES[member["family"]](member["size"]) for member in members),
    )
    coordinates = Coordinates(
        tuple(
            site_coordinates(site["name"], tuple(site["shape"]), constraint_from_json(site["support"]))
            for site in description["sites"]
        )
    )
    found, name = _model(model, description["model"])
    return Result(
        posterior=Posterior(family, tensors["posterior"], coordinates),
        prior=Posterior(family, tensors["prior"], coordinates),
        factors={
            client: Factor(family, parts[f"{index}.natural"], parts[f"{index}.log_scale"])
            for index, client in enumerate(description["clients"])
        },
        history=[history_from_json(record) for record in description["history"]],
        model=found,
        model_name=name,
        observed=tuple(description["observed"]),
        columns=tuple(description["columns"]),
        settings=description["settings"],
    )


def _model(given: Callable[..., Any] | str | None, saved: str) -> tuple[Callable[..., Any] | None, str]:
    if given is not None:
        return resolve_model(given), given if isinstance(given, str) else saved
    try:
        return resolve_model(saved), saved
    except ModelNameError:
        return None, saved


def history_to_json(record: Round) -> dict[str, Any]:
    """A round as plain JSON values."""
    clients = {}
    for name, info in record.clients.items():
        clients[name] = info._asdict() | {"solver": info.solver._asdict() if info.solver else None}
    return record._asdict() | {"clients": clients}


def history_from_json(record: dict[str, Any]) -> Round:
    """The inverse of :func:`history_to_json`."""
    clients = {}
    for name, info in record["clients"].items():
        solver = SolverInfo(**info["solver"]) if info["solver"] else None
        clients[name] = ClientInfo(**(info | {"solver": solver}))
    return Round(**(record | {"clients": clients}))


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
