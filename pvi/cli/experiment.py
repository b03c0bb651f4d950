"""``pvi experiment NAME``: a published experiment from one command, into a folder."""

import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape

from pvi.cli.errors import explained
from pvi.cli.experiment_run import Request, run
from pvi.cli.signals import terminable
from pvi.experiments import EXPERIMENTS

INTERRUPTED = 130
OPTIONS, RUN = "Experiment", "Run"

app = typer.Typer(
    help="Repeat a published experiment: a table beside the published numbers, curves, and all that is needed to run "
    "it again.",
    no_args_is_help=True,
)


def _shared(
    preset: Annotated[str, typer.Option(help="full, or quick: minutes on two cores.", rich_help_panel=RUN)] = "full",
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The folder of the data; else PVI_DATA, else the public source.", rich_help_panel=RUN),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the results; default experiment-NAME.", rich_help_panel=RUN)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this method, as the table names it; repeat.", rich_help_panel=RUN)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a run into the same folder stopped.", rich_help_panel=RUN)
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder that holds other things.", rich_help_panel=RUN)
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:0, ...", rich_help_panel=RUN)] = "cpu",
    threads: Annotated[
        int,
        typer.Option(help="Threads for one computation; small steps are fastest with one.", min=1, rich_help_panel=RUN),
    ] = 1,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=RUN)
    ] = False,
) -> None:
    """Only its parameters matter: they are those of every experiment."""


def command(kind: Any) -> Callable[..., None]:
    """An experiment as a command: its fields are options, ``None`` where the preset decides."""
    hints = get_type_hints(kind)

    def play(**given: Any) -> None:
        shared = {name: given.pop(name) for name in inspect.signature(_shared).parameters}
        debug = shared.pop("debug")
        console = Console()
        with explained(debug):
            own = {name: value for name, value in given.items() if value is not None}
            said = (
                f"pvi {shlex.join(sys.argv[1:])}" if sys.argv[1:2] == ["experiment"] else f"pvi experiment {kind.NAME}"
            )
            with terminable():
                complete = run(kind, own, Request(command=said, **shared), console)
        if not complete:
            raise typer.Exit(INTERRUPTED)

    parameters = []
    for field in fields(kind):
        default = "" if field.default is None else f" Default {escape(str(field.default))}."
        option = typer.Option(help=f"{field.metadata['help']}{default}", rich_help_panel=OPTIONS)
        annotation: Any = Annotated[hints[field.name] | None, option]
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        )
    common = [
        value.replace(kind=inspect.Parameter.KEYWORD_ONLY) for value in inspect.signature(_shared).parameters.values()
    ]
    play.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
    play.__annotations__ = {value.name: value.annotation for value in (*parameters, *common)}
    play.__doc__ = inspect.getdoc(inspect.getmodule(kind))
    return play


for _kind in EXPERIMENTS.values():
    app.command(_kind.NAME)(command(_kind))
