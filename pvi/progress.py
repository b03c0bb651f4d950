"""Tell the user what is happening while a run goes on."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pvi.history import Round
from pvi.posterior import Posterior

Report = Callable[[Round, Posterior], None]


def nats(value: float, decimals: int = 3) -> str:
    """A number of nats for a line: with decimals, or in powers of ten where it has more digits than anybody reads."""
    return f"{value:.{decimals}f}" if abs(value) < 1e12 else f"{value:.3g}"


def describe(record: Round, heldout: float = math.nan, name: str = "ELBO") -> str:
    """What a round achieved in one line; ``heldout`` is a mean held-out log density, nats a row, where there is one.

    ``name`` is what the free energy is called, see :attr:`pvi.Result.elbo_name`.
    """
    parts = [f"{name} {nats(record.elbo)}"]
    if record.elbo_standard_error:
        parts[0] += f" ± {record.elbo_standard_error:.2g}"
    if math.isfinite(heldout):
        parts.append(f"held-out {nats(heldout, 4)}")
    if record.step_fraction < 1:
        parts.append(f"step × {record.step_fraction:.2g}")
    for label, clients in (("rejected", record.rejected), ("not converged", record.unconverged)):
        if clients:
            parts.append(f"{label}: {', '.join(clients)}")
    return "  ".join(parts)


@contextmanager
def reporter(progress: bool | Report, rounds: int, name: str = "ELBO") -> Iterator[Report]:
    """A function to call after each round: nothing, a progress bar, or the user's own; ``name`` as above."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda record, posterior: None
    else:
        columns = (TextColumn("round"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Progress(*columns, TimeRemainingColumn()) as bar:
            task = bar.add_task("", total=rounds)
            yield lambda record, posterior: bar.update(task, advance=1, description=describe(record, name=name))
