"""Results on disk: natural parameters as safetensors, everything else as JSON; no pickles, no client's rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise

from pvi.client import ClientInfo
from pvi.factors import Factor
from pvi.families import Coordinates, Product
from pvi.history import Round
from pvi.posterior import Posterior
from pvi.programs.hyperparameters import bind
from pvi.programs.names import ModelNameError, resolve_model
from pvi.result import Result
from pvi.solvers import SolverInfo
from pvi.spaces import CheckpointError, space_from_json, space_to_json

FORMAT = 1


def save(result: Result, path: Path) -> None:
    """Write ``posterior.safetensors``, ``factors.safetensors`` and ``result.json`` into the folder ``path``."""
    description = space_to_json(result.posterior) | {
        "format": FORMAT,
        "model": result.model_name,
        "observed": list(result.observed),
        "columns": list(result.columns),
        "settings": dict(result.settings),
        "clients": list(result.factors),
        "local": {name: space_to_json(posterior) for name, posterior in result.local.items()},
        "by_row": list(result.by_row),
        "personal": list(result.personal),
        "history": [history_to_json(record) for record in result.history],
    }
    path.mkdir(parents=True, exist_ok=True)
    tensors = {"posterior": result.posterior.natural, "prior": result.prior.natural}
    tensors |= {f"hyperparameter.{name}": value for name, value in result.hyperparameters.items()}
    if result.correction is not None:
        tensors |= {"correction": result.correction.natural, "correction.log_scale": result.correction.log_scale}
    _write(tensors, path / "posterior.safetensors")
    factors: dict[str, torch.Tensor] = {}
    for index, factor in enumerate(result.factors.values()):
        factors[f"{index}.natural"] = factor.natural
        factors[f"{index}.log_scale"] = factor.log_scale
    for index, local in enumerate(result.local.values()):
        factors[f"local.{index}"] = local.natural
    for index, personal in enumerate(result.personal.values()):
        factors[f"personal.{index}"] = personal.natural
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
    family, coordinates = space_from_json(description, folder)
    found, name = _model(model, description["model"])
    values = {key.split(".", 1)[1]: tensors[key] for key in tensors if key.startswith("hyperparameter.")}
    correction = None
    if "correction" in tensors:
        correction = Factor(family, tensors["correction"], tensors["correction.log_scale"])
    return Result(
        posterior=Posterior(family, tensors["posterior"], coordinates),
        prior=Posterior(family, tensors["prior"], coordinates),
        factors={
            client: Factor(family, parts[f"{index}.natural"], parts[f"{index}.log_scale"])
            for index, client in enumerate(description["clients"])
        },
        history=[history_from_json(record) for record in description["history"]],
        model=None if found is None else bind(found, values),
        model_name=name,
        observed=tuple(description["observed"]),
        columns=tuple(description["columns"]),
        settings=description["settings"],
        hyperparameters=values,
        correction=correction,
        local={
            client: Posterior(*_placed(space_from_json(space, folder), parts[f"local.{index}"]))
            for index, (client, space) in enumerate(description.get("local", {}).items())
        },
        by_row=tuple(description.get("by_row", ())),
        personal={
            client: Posterior(family, parts[f"personal.{index}"], coordinates)
            for index, client in enumerate(description.get("personal", ()))
        },
    )


def _placed(space: tuple[Product, Coordinates], natural: torch.Tensor) -> tuple[Product, torch.Tensor, Coordinates]:
    family, coordinates = space
    return family, natural, coordinates


def _model(given: Callable[..., Any] | str | None, saved: str) -> tuple[Callable[..., Any] | None, str]:
    if given is not None:
        return resolve_model(given), given if isinstance(given, str) else saved
    try:
        return resolve_model(saved), saved
    except ModelNameError:
        return None, saved


def history_to_json(record: Round) -> dict[str, Any]:
    """A round as plain JSON values."""
    clients = {name: _info_to_json(info) for name, info in record.clients.items()}
    return record._asdict() | {"clients": clients, "earlier": [_info_to_json(info) for info in record.earlier]}


def _info_to_json(info: ClientInfo) -> dict[str, Any]:
    return info._asdict() | {"solver": info.solver._asdict() if info.solver else None}


def history_from_json(record: dict[str, Any]) -> Round:
    """The inverse of :func:`history_to_json`."""
    clients = {name: _info_from_json(info) for name, info in record["clients"].items()}
    earlier = tuple(_info_from_json(info) for info in record.get("earlier", ()))
    mixing = tuple(record.get("mixing", ()))
    return Round(**(record | {"clients": clients, "earlier": earlier, "mixing": mixing}))


def _info_from_json(info: dict[str, Any]) -> ClientInfo:
    solver = SolverInfo(**info["solver"]) if info["solver"] else None
    return ClientInfo(**(info | {"solver": solver}))
