"""What a wheel holds: every package, the models as ``pvi.models``, and a command that exists."""

import importlib
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_listed():
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "pvi").rglob("__init__.py")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == {*found, "pvi.models"}


def test_every_module_lies_in_a_package():
    for path in (ROOT / "pvi").rglob("*.py"):
        assert (path.parent / "__init__.py").exists(), path


def test_the_command_exists():
    module, _, attribute = PROJECT["project"]["scripts"]["pvi"].partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_the_version_is_said_once():
    import pvi

    assert pvi.__version__ == PROJECT["project"]["version"]
