"""Everything that determines a run, as one record that goes to ``config.json`` and back."""

import hashlib
import inspect
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pvi.programs.names import resolve_model
from pvi.solvers import Solver, resolve_solver

FORMAT = 1
BINARY = ("logistic_regression", "mixed_logistic_regression")
"""Bundled models of a target that is 0 or 1."""


@dataclass(frozen=True)
class FitOptions:
    """The options of ``pvi fit`` but for where the output goes; names are those of the command line.

    ``None`` for schedule, damping and rounds means the algorithm's own. :mod:`pvi.cli.parts` makes objects of them;
    ``set`` holds the algorithm's own options.
    """

    files: tuple[str, ...]
    target: str
    positive: str | None = None
    header: bool = True
    names: tuple[str, ...] = ()
    separator: str | None = None
    na: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    boolean: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    missing: str = "error"
    by: str | None = None
    standardise: str = "numeric"
    coding: str = "reference"
    holdout: float = 0.2
    task: str | None = None
    model: str = "logistic_regression"
    argument: tuple[str, ...] = ()
    guide: str | None = None
    algorithm: str = "pvi"
    alpha: float | None = None
    set: tuple[str, ...] = ()
    schedule: str | None = None
    subset_size: int | None = None
    latency: tuple[str, ...] = ()
    damping: float | str | None = None
    acceleration: str | None = None
    memory: int | None = None
    learn: tuple[str, ...] = ()
    rounds: int | None = None
    seed: int = 0
    device: str = "cpu"
    solver: str | None = None
    threads: int = 1
    executor: str = "auto"

    @property
    def table_task(self) -> str:
        """``binary`` where asked for, where a positive value is named, and for logistic regressions."""
        if self.task is not None:
            return self.task
        return "binary" if self.positive is not None or self.model in BINARY else "numeric"

    def local_solver(self) -> Solver | None:
        """The solver by name, None for the default; raises ``ValueError``."""
        return None if self.solver is None else resolve_solver(self.solver)

    def model_arguments(self) -> dict[str, Any]:
        """``--argument prior_scale=2`` and so on as keywords of the model; raises ``ValueError``."""
        found: dict[str, Any] = {}
        known = inspect.signature(resolve_model(self.model)).parameters
        for text in self.argument:
            name, equals, value = text.partition("=")
            if not equals:
                raise ValueError(f"--argument {text!r}: write name=value, for example prior_scale=2")
            if name not in known:
                raise ValueError(f"--argument {text!r}: model {self.model!r} takes {', '.join(known)}")
            found[name] = None if value == "none" else number(value)
            if isinstance(found[name], str):
                raise ValueError(f"--argument {text!r}: the value must be a number, or none")
        return found


def split(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Options that may be repeated and hold commas: ``--na '?' --na ',NA'`` gives "?", "", "NA"."""
    return tuple(part.strip() for text in texts or () for part in text.split(","))


def number(text: str) -> float | str:
    """The number that a text writes, else the text."""
    try:
        return float(text)
    except ValueError:
        return text


def config(options: FitOptions, schema: Mapping[str, Any], files: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """What ``config.json`` holds: options, versions, files with their SHA-256, the tables' schema, and ``more``."""
    from pvi import __version__

    packages = {"torch": "torch", "pyro": "pyro-ppl", "numpy": "numpy", "pandas": "pandas"}
    versions = {"pvi": __version__, "python": platform.python_version()}
    versions |= {name: version(package) for name, package in packages.items()}
    return {
        "format": FORMAT,
        "options": asdict(options),
        "versions": versions,
        "files": dict(files),
        **more,
        "schema": dict(schema),
    }


def read_config(path: Path) -> dict[str, Any]:
    """A ``config.json``; raises ``ValueError`` where it is not one, ``FileNotFoundError`` where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not the config.json of a pvi run ({error})") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({error})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or "options" not in found:
        raise ValueError(f"{path} is not the config.json of a pvi run, or of another version")
    return found


def options_from(found: Mapping[str, Any], path: Path) -> FitOptions:
    """The options in a config; raises ``ValueError`` naming what does not belong."""
    given = dict(found["options"])
    unknown = sorted(set(given) - {field.name for field in fields(FitOptions)})
    if unknown:
        raise ValueError(f"{path}: unknown options {', '.join(unknown)}")
    try:
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }
        return FitOptions(**values)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def digests(paths: Sequence[str]) -> dict[str, str]:
    """The SHA-256 of each file that there is."""
    return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths if Path(path).is_file()}


def model_digest(model: str) -> str | None:
    """The SHA-256 of the file of a model ``file.py:attribute``; None for other models."""
    path = model.rpartition(":")[0] if ":" in model else model
    return next(iter(digests([path]).values()), None) if path.endswith(".py") else None


def model_changed(found: Mapping[str, Any], model: str, where: Path) -> str:
    """A sentence where a model's file is not what it was for the config ``found``, else ""."""
    before, now = found.get("model_sha256"), model_digest(model)
    if before is None or now is None or before == now:
        return ""
    return f"{model} has changed since the run in {where}."
