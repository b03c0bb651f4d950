"""An experiment's folder: what was run, what came out, how to run it again."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pandas as pd
import pyro
import torch

import pvi
from pvi.experiments.protocol import Setting

CONFIG, CURVES, TABLE, PICTURE, REPORT = "config.json", "curves.csv", "table.csv", "curves.png", "README.md"
WRITTEN = (CONFIG, CURVES, TABLE, PICTURE, REPORT)
PARTITION, DRAFT, RELIABILITY, OWN_PICTURE = "partition.png", f"{CURVES}.part", "reliability-", "picture-"


def options_of(experiment: Any) -> dict[str, Any]:
    """An experiment's options by name."""
    return {field.name: getattr(experiment, field.name) for field in fields(experiment)}


def scaled(experiment: Any) -> list[str]:
    """What differs from the full size, option by option: ``rounds 20 -> 3``."""
    full = options_of(type(experiment)())
    own = options_of(experiment)
    return [f"{name} {full[name]} -> {value}" for name, value in own.items() if value != full[name]]


def preset(kind: Any, quick: bool, given: Mapping[str, Any]) -> Any:
    """An experiment at its full or quick size, with the options that the user gives.

    Raises ``ValueError`` for options that the experiment refuses, and for fewer than one seed.
    """
    found = replace(kind(), **{**(kind.QUICK if quick else {}), **given})
    if found.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {found.seeds}")
    return found


def config(experiment: Any, command: str, digests: Mapping[int, str]) -> dict[str, Any]:
    """Everything that is needed to repeat a run; ``digests`` of each seed's rows tell whether the data are the same."""
    return {
        "experiment": experiment.NAME,
        "options": options_of(experiment),
        "scaled_from_full": scaled(experiment),
        "command": command,
        "data_sha256": {str(seed): digest for seed, digest in digests.items()},
        "versions": {
            "pvi": pvi.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "pyro": pyro.__version__,
            "numpy": numpy.__version__,
        },
    }


def digest(setting: Setting) -> str:
    """SHA-256 of all clients' rows and the test rows, as the models see them."""
    found = hashlib.sha256()
    for name, pair in (*setting.clients.items(), ("test rows", setting.test)):
        found.update(name.encode())
        for part in pair:
            found.update(f"{part.dtype} {list(part.shape)}".encode())
            found.update(part.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


class Earlier(NamedTuple):
    """The curves of an earlier run, empty where it finished nothing, the digests of its seeds' rows, its command.

    ``others`` are its versions where they are not those of now.
    """

    curves: pd.DataFrame
    digests: dict[int, str]
    command: str
    others: str


def read_done(folder: Path, wanted: Mapping[str, Any]) -> Earlier:
    """What an earlier run of the same experiment has done.

    Raises ``ValueError`` where the folder holds none, or one with other options.
    """
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder}: there is no {CONFIG} to resume from; leave --resume out")
    found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    for key in ("experiment", "options"):
        if found.get(key) != json.loads(json.dumps(wanted[key])):
            raise ValueError(f"{folder}: the run there has other options ({found.get(key)}); choose another --out")
    path = folder / CURVES
    curves = read_curves(path) if path.exists() else pd.DataFrame()
    digests = {int(seed): text for seed, text in found["data_sha256"].items()}
    others = [f"{name} {version}" for name, version in found["versions"].items() if version != wanted["versions"][name]]
    return Earlier(curves, digests, found["command"], ", ".join(others))


def read_curves(path: Path) -> pd.DataFrame:
    """``curves.csv`` to the last digit, which the number parsers of some versions of pandas get wrong."""
    found = pd.read_csv(path, dtype=str, keep_default_na=False)
    return pd.DataFrame({name: [_cell(str(name), text) for text in found[name]] for name in found.columns})


def holds_a_run(folder: Path) -> bool:
    """Whether a folder holds an experiment's results: then files of their names are not the user's own."""
    try:
        return "experiment" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def clear(folder: Path) -> None:
    """Remove what an earlier run has written: stopped at once, a new one must not pass for it."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_own(path.name):
            path.unlink()


def is_own(name: str) -> bool:
    """Whether a file of this name is one that a run writes."""
    return name in (*WRITTEN, PARTITION, DRAFT) or (
        (name.startswith(RELIABILITY) and name.endswith(".png"))
        or (name.startswith(OWN_PICTURE) and name.endswith((".png", ".csv")))
    )


def write_config(folder: Path, settings: Mapping[str, Any]) -> None:
    """``config.json``, before anything is computed and again when the data are known."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_curves(folder: Path, curves: pd.DataFrame) -> None:
    """``curves.csv``, whole or not at all: a run may be killed at any time."""
    draft = folder / DRAFT
    curves.to_csv(draft, index=False)
    draft.replace(folder / CURVES)


def _cell(column: str, text: str) -> str | int | float:
    """A cell of the curves; an empty one is NaN."""
    if column == "method":
        return text
    return int(text) if text.isdigit() else float(text or "nan")
