"""Mistakes of the user end in one red line and exit code 2; ``--debug`` shows where they were noticed."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

from pvi.cli.options import FitOptions
from pvi.programs.errors import ProgramError


@contextmanager
def explained(debug: bool) -> Iterator[None]:
    """Turn errors of input (``ValueError``, ``TypeError``, ``OSError``) into a line on stderr and exit code 2."""
    try:
        yield
    except BrokenPipeError:
        # The reader of our output has seen enough (| head): typer ends quietly.
        raise
    except (ValueError, TypeError, OSError) as error:
        if debug:
            raise
        console = Console(stderr=True)
        # On a terminal lines wrap at words; in a log one error stays one line.
        console.print(Text(f"Error: {message(error)}", style="red"), soft_wrap=not console.is_terminal)
        raise typer.Exit(2) from error


@contextmanager
def learning_explained(options: FitOptions) -> Iterator[None]:
    """Add how the command line says it to the error on hyperparameters that nothing is said of."""
    try:
        yield
    except ProgramError as error:
        if not options.learn and "pyro.param" in str(error):
            error.add_note("here: --learn all, --learn NAME, or --learn none")
        raise


def message(error: Exception) -> str:
    """What is wrong, on one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    notes = (f"({note})" for note in getattr(error, "__notes__", ()))
    return " ".join([" ".join(str(error).split()) or type(error).__name__, *notes])
