"""Imports go only downwards through the layers, lazy ones inside functions too."""

import ast
from pathlib import Path

import pytest

import pvi

ROOT = Path(pvi.__file__).parent
MODELS = ROOT.parent / "models"

LAYERS = (
    "theory",
    "quadrature",
    "adaptive_quadrature",
    "packed_quadrature",
    "families",
    "posterior",
    "factors",
    "cavities",
    "damping",
    "programs",
    "objectives",
    "memory",
    "buckets",
    "stack",
    "replay",
    "capture",
    "engine",
    "row_graph",
    "row_likelihoods",
    "blocks",
    "terms",
    "solvers",
    "aggregators",
    "schedules",
    "client",
    "server",
    "algorithms",
    "executors",
    "history",
    "acceleration",
    "data",
    "assembly",
    "problem",
    "learning",
    "free_energy",
    "progress",
    "exact_prediction",
    "result",
    "diagnostics",
    "spaces",
    "checkpoint",
    "report",
    "tally",
    "rounds",
    "accelerated",
    "play",
    "start",
    "conclusion",
    "run",
    "__init__",  # the package itself: what a user imports
    "experiments",
    "cli",
    "testing",
)
"""A module may import its own layer and those before it."""

LAZY = {("result", "save", "checkpoint"), ("result", "to_arviz", "diagnostics")}
"""A result's conveniences: (module, method, imported layer)."""

FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def layer_of(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported_layers(node, path):
    """The layers of pvi that an import statement reaches; ``__version__`` counts for nothing."""
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
    elif node.level:
        package = ["pvi", *path.relative_to(ROOT).parts[:-1]]
        base = package[: len(package) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
        names = [[*base, alias.name] for alias in node.names]
    else:
        names = [[*node.module.split("."), alias.name] for alias in node.names]
    for parts in names:
        if parts[0] != "pvi" or parts[1:] == ["__version__"]:
            continue
        yield parts[1] if len(parts) > 1 and (parts[1] in LAYERS or parts[1] == "models") else "__init__"


def imports(path):
    """(line, innermost function around it, layer) of every import of pvi."""
    found = []

    def visit(node, function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.extend((node.lineno, function, layer) for layer in imported_layers(node, path))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(path.read_text(encoding="utf-8")), None)
    return found


def violations(path):
    layer = layer_of(path)
    wrong = []
    for line, function, target in imports(path):
        if (layer, function, target) in LAZY:
            continue
        if target == "models" and layer != "experiments":  # which are programs of users, like examples
            wrong.append(f"{path.name}:{line} imports pvi.models; models are found by name")
        elif target != "models" and LAYERS.index(target) > LAYERS.index(layer):
            wrong.append(f"{path.name}:{line} imports {target} from the lower layer {layer}")
    return wrong


def test_every_module_has_a_layer():
    assert {layer_of(path) for path in FILES} <= set(LAYERS)
    assert len(set(LAYERS)) == len(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path):
    assert violations(path) == []


def test_lazy_exceptions_are_still_needed():
    used = {(layer_of(path), function, target) for path in FILES for _, function, target in imports(path)}
    assert used >= LAZY


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.py")), ids=lambda path: path.name)
def test_models_import_torch_and_pyro_only(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            tops = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            tops = {(node.module or ".").split(".")[0]} if not node.level else {"."}
        else:
            continue
        assert tops <= {"torch", "pyro", "math", "collections", "typing"}, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("source", "place", "wrong"),
    [
        ("from pvi.posterior import Posterior", "families/x.py", True),
        ("def f():\n    from pvi.run import fit", "client.py", True),
        ("from pvi import fit", "factors.py", True),
        ("import pvi.cli", "run.py", True),
        ("from ..run import fit", "solvers/x.py", True),
        ("from pvi.models.poisson_regression import model", "cli/x.py", True),
        ("from pvi.models.poisson_regression import model", "experiments/x.py", False),
        ("from pvi import __version__", "families/x.py", False),
        ("from pvi.families import Family", "run.py", False),
        ("from . import newton", "solvers/x.py", False),
    ],
)
def test_the_rule_sees_what_it_should(source, place, wrong, tmp_path, monkeypatch):
    monkeypatch.setattr("test_imports.ROOT", tmp_path)
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    assert bool(violations(path)) is wrong
