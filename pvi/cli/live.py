"""Rounds as they happen: a progress bar on a terminal, a line a round elsewhere; warnings between them."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pvi.cli.options import FitOptions
from pvi.cli.parts import algorithm, is_timed
from pvi.conclusion import elbo_name
from pvi.history import Round
from pvi.progress import describe, nats

Show = Callable[[Round, float, float], None]
"""Takes a round's record, and the held-out log density by the shared and by the personal posteriors (else NaN)."""


@contextmanager
def shown(console: Console, rounds: int, options: FitOptions) -> Iterator[Show]:
    """A function to call after every round with its record and the held-out log densities a row."""
    with warnings_on(console):
        if not console.is_terminal:
            width = len(str(rounds))

            def say(record: Round, heldout: float, personal: float) -> None:
                text = f"round {record.number:{width}}/{rounds}  {line(record, heldout, options, personal)}"
                console.print(text, highlight=False, markup=False)

            yield say
            return
        said = TextColumn("{task.description}", markup=False)
        columns = (TextColumn("round"), MofNCompleteColumn(), BarColumn(20), said)
        with Progress(*columns, TimeRemainingColumn(compact=True), console=console) as bar:
            task = bar.add_task("", total=rounds)

            def update(record: Round, heldout: float, personal: float) -> None:
                bar.update(task, advance=1, description=line(record, heldout, options, personal))

            yield update


def line(record: Round, heldout: float, options: FitOptions, personal: float = math.nan) -> str:
    """What a round achieved, and how: the damping where it varies, the mixing, the simulated time, what was learned."""
    parts = [describe(record, heldout, elbo_name(algorithm(options)))]
    if math.isfinite(personal):
        parts.append(f"personal {nats(personal, 4)}")
    if isinstance(options.damping, str):
        tries = f" ({record.attempts} attempts)" if record.attempts > 1 else ""
        parts.append(f"damping {record.damping:.3g}{tries}")
    if record.mixing:
        parts.append("accelerated")
    if is_timed(options):
        parts.append(f"time {record.simulated_seconds:g} s")
    if record.max_staleness:
        parts.append(f"staleness {record.max_staleness}")
    # A vector would push everything else off the line; it is in the table at the end.
    parts += [f"{name} {value:.4g}" for name, value in record.hyperparameters.items() if isinstance(value, float)]
    return "  ".join(parts)


class _Told(logging.Handler):
    """Prints log records on a console."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        self.console.print(f"Warning: {record.getMessage()}", style="yellow", highlight=False, markup=False)


@contextmanager
def warnings_on(console: Console) -> Iterator[None]:
    """Show what the library warns of on this console."""
    logger, told = logging.getLogger("pvi"), _Told(console)
    logger.addHandler(told)
    try:
        yield
    finally:
        logger.removeHandler(told)
