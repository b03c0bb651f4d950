"""``pvi models``: which models there are and what they take."""

import inspect
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pvi.programs.names import bundled_models, resolve_model


def models() -> None:
    """List the bundled models and their arguments."""
    console = Console()
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    shown.add_column("model", style="bold", no_wrap=True)
    shown.add_column("what it is")
    shown.add_column("arguments")
    for name, what in bundled_models().items():
        parameters = inspect.signature(resolve_model(name)).parameters.values()
        shown.add_row(name, escape(what), escape(", ".join(_argument(parameter) for parameter in parameters)))
    console.print(shown)
    console.print(
        "Choose with --model NAME, set numbers with --argument NAME=VALUE. A model of your own is a Pyro program in a "
        "file: --model my_model.py:model",
        highlight=False,
        markup=False,
    )


def _argument(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    if default in (inspect.Parameter.empty, None):
        return parameter.name
    return f"{parameter.name}={default.__name__ if callable(default) else default}"
