"""Find a model by name: bundled, by import path, or in a file."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUNDLED = "pvi.models"


class ModelNameError(ValueError):
    """A model's name that leads nowhere."""


def bundled_models() -> dict[str, str]:
    """Name and first docstring line of every bundled model."""
    package = importlib.import_module(BUNDLED)
    folder = Path(str(package.__path__[0]))
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    modules = {name: importlib.import_module(f"{BUNDLED}.{name}") for name in names}
    return {name: (module.__doc__ or "").strip().split("\n")[0] for name, module in modules.items()}


def resolve_model(model: Callable[..., Any] | str) -> Callable[..., Any]:
    """A Pyro program itself, or the one that ``name``, ``pkg.mod:attr`` or ``file.py:attr`` means.

    Without ``:attr`` the attribute is ``model``. Raises :class:`ModelNameError`.
    """
    if callable(model):
        return model
    if not isinstance(model, str):
        raise TypeError(f"a model is a Pyro program (a function) or its name, got {type(model).__name__}")
    path, _, attribute = model.rpartition(":") if ":" in model else (model, "", "model")
    if path.endswith(".py"):
        module = _load_file(Path(path), model)
    elif ":" not in model and "." not in model:
        if path not in bundled_models():
            raise ModelNameError(
                f"no bundled model {model!r}; there are {', '.join(bundled_models())}. "
                "Your own: 'package.module:attribute' or 'file.py:attribute'"
            )
        module = importlib.import_module(f"{BUNDLED}.{path}")
    else:
        try:
            module = importlib.import_module(path)
        except Exception as error:
            raise ModelNameError(f"model {model!r}: cannot import {path!r}: {type(error).__name__}: {error}") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise ModelNameError(f"model {model!r}: {path} has no function {attribute!r}; it has {names}")
    return found


def _load_file(path: Path, model: str) -> Any:
    if not path.exists():
        raise ModelNameError(f"model {model!r}: there is no file {path}")
    name = f"_pvi_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelNameError(f"model {model!r}: {path} fails on import: {type(error).__name__}: {error}") from error
    return module
