"""Tell the user what is happening while a run goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pvi.history import Round
from pvi.posterior import Posterior

Report = Callable[[Round, Posterior], None]


def describe(record: Round) -> str:
    """One line about a round."""
    parts = [f"ELBO {record.elbo:.3f}"]
    if record.elbo_standard_error:
        parts.append(f"± {record.elbo_standard_error:.2g}")
    parts.append(f"nats, max |Δη| {record.max_delta:.2g}")
    if record.step_fraction < 1:
        parts.append(f", step shortened to {record.step_fraction:.2g}")
    if record.rejected:
        parts.append(f", rejected: {', '.join(record.rejected)}")
    if record.unconverged:
        parts.append(f", not converged: {', '.join(record.unconverged)}")
    return " ".join(parts).replace(" ,", ",")


@contextmanager
def reporter(progress: bool | Report, rounds: int) -> Iterator[Report]:
    """A function to call after each round: nothing, a progress bar, or the user's own."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda record, posterior: None
    else:
        columns = (TextColumn("round"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Progress(*columns, TimeRemainingColumn()) as bar:
            task = bar.add_task("", total=rounds)
            yield lambda record, posterior: bar.update(task, advance=1, description=describe(record))
