"""Rounds as they happen: a progress bar on a terminal, a line a round elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pvi.history import Round
from pvi.progress import describe

Show = Callable[[Round, float], None]


@contextmanager
def shown(console: Console, rounds: int) -> Iterator[Show]:
    """A function to call after every round with its record and the held-out log density a row."""
    if not console.is_terminal:
        width = len(str(rounds))

        def say(record: Round, heldout: float) -> None:
            text = f"round {record.number:{width}}/{rounds}  {describe(record, heldout)}"
            console.print(text, highlight=False, markup=False)

        yield say
        return
    columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, TimeRemainingColumn(compact=True), console=console) as bar:
        task = bar.add_task("", total=rounds)
        yield lambda record, heldout: bar.update(task, advance=1, description=describe(record, heldout))
