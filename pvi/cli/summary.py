"""What a run found besides coefficients, and how it went: hyperparameters, private latents, damping, time."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import pandas as pd
from rich import box
from rich.markup import escape
from rich.table import Table

from pvi.cli.options import FitOptions
from pvi.cli.parts import is_timed
from pvi.diagnostics.labels import element_labels
from pvi.history import Round
from pvi.result import Result

MOST = 40
"""Lines of a table of private latents: those of many clients are for Python."""


def hyperparameter_frame(result: Result) -> pd.DataFrame:
    """The model's ``pyro.param``s, an element a row: ``hyperparameter``, ``value``, and whether it was ``learned``."""
    learned = result.history[-1].hyperparameters
    rows = [
        (name if value.ndim == 0 else f"{name}[{index}]", number, name in learned)
        for name, value in result.hyperparameters.items()
        for index, number in enumerate(value.reshape(-1).tolist())
    ]
    return pd.DataFrame(rows, columns=["hyperparameter", "value", "learned"])


def hyperparameter_table(frame: pd.DataFrame) -> Table:
    """The same for the terminal."""
    shown = _table("Hyperparameters")
    shown.add_column("hyperparameter", overflow="fold")
    shown.add_column("value", justify="right")
    shown.add_column("")
    for name, value, learned in frame.itertuples(index=False):
        shown.add_row(escape(name), f"{value:.4g}", "learned" if learned else "as given")
    return shown


def private_table(result: Result) -> tuple[Table | None, str]:
    """Each client's own latents, an element a line, and sentences on them; ``None`` and "" where there are none.

    Latents with one value a row are left out, and what goes beyond the first lines.
    """
    if not result.private:
        return None, ""
    sentences = ["Private latents belong to one client."]
    lines = []
    for client, posterior in result.private.items():
        labels = element_labels(posterior.coordinates, result.columns)
        for site in (name for name in posterior.site_names if name not in result.by_row):
            mean, sd = (part.reshape(-1).tolist() for part in posterior.moments(site))
            lines += [(client, label, *numbers) for label, *numbers in zip(labels[site], mean, sd, strict=True)]
    if lines:
        sentences.append("Its held-out rows are predicted with them.")
    if result.by_row:
        sentences.append("Those with one value a row are new in held-out rows.")
    left_out = [f"latents with one value a row ({', '.join(result.by_row)})"] if result.by_row else []
    if len(lines) > MOST:
        left_out.append(f"{len(lines) - MOST} of {len(lines)} lines of private latents")
    if left_out:
        sentences.append(f"Not shown: {', '.join(left_out)}; pvi.load(folder).private has them.")
    note = " ".join(sentences)
    if not lines:
        return None, note
    shown = _table("Private latents")
    shown.add_column("client", overflow="fold")
    shown.add_column("latent", overflow="fold")
    for name in ("mean", "sd"):
        shown.add_column(name, justify="right")
    for client, label, mean, sd in lines[:MOST]:
        shown.add_row(escape(client), escape(label), f"{mean:.3f}", f"{sd:.3f}")
    return shown, note


def remarks(options: FitOptions, rounds: Sequence[Round]) -> Iterator[str]:
    """How the rounds went: mixing, the damping where it varies, simulated time."""
    if options.acceleration is not None:
        mixed = sum(bool(record.mixing) for record in rounds)
        yield f"Acceleration: {mixed} of {len(rounds)} rounds mixed earlier ones; the others took the plain step."
    if isinstance(options.damping, str):
        taken_back = sum(record.attempts - 1 for record in rounds)
        mean = fmean(record.damping for record in rounds)
        searched = f"; {taken_back} rounds that lowered the ELBO were taken back" if options.damping == "auto" else ""
        yield f"Damping: {mean:.3g} on average, {rounds[-1].damping:.3g} in the last round{searched}."
    stale = max(record.max_staleness for record in rounds)
    if is_timed(options):
        yield f"Simulated time: {rounds[-1].simulated_seconds:g} s."
    if stale:
        steps = "step" if stale == 1 else "steps"
        yield f"Staleness: the server had taken up to {stale} {steps} more when an update arrived."


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
