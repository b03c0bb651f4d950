"""Rounds as they happen: a progress bar on a terminal, a line a round elsewhere."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pvi.history import Round

Show = Callable[[Round, float], None]


def line(record: Round, heldout: float) -> str:
    """What a round achieved, short enough for a narrow terminal."""
    parts = [f"ELBO {record.elbo:.3f}"]
    if record.elbo_standard_error:
        parts[0] += f" ± {record.elbo_standard_error:.2g}"
    if math.isfinite(heldout):
        parts.append(f"held-out {heldout:.4f}")
    if record.step_fraction < 1:
        parts.append(f"step × {record.step_fraction:.2g}")
    if record.rejected:
        parts.append(f"rejected {', '.join(record.rejected)}")
    if record.unconverged:
        parts.append(f"not converged {', '.join(record.unconverged)}")
    return "  ".join(parts)


@contextmanager
def shown(console: Console, rounds: int) -> Iterator[Show]:
    """A function to call after every round with its record and the held-out log density a row."""
    if not console.is_terminal:
        width = len(str(rounds))

        def say(record: Round, heldout: float) -> None:
            text = f"round {record.number:{width}}/{rounds}  {line(record, heldout)}"
            console.print(text, highlight=False, markup=False)

        yield say
        return
    columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, TimeRemainingColumn(compact=True), console=console) as bar:
        task = bar.add_task("", total=rounds)
        yield lambda record, heldout: bar.update(task, advance=1, description=line(record, heldout))
