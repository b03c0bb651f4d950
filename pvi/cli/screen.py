"""What ``pvi fit`` shows before and after its rounds."""

from collections.abc import Mapping

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pvi.cli import output
from pvi.cli.options import FitOptions
from pvi.cli.summary import hyperparameter_frame, hyperparameter_table, private_table, remarks
from pvi.cli.words import doubts, explanations
from pvi.data import Tables, describe
from pvi.diagnostics import heldout_metrics, personal_metrics
from pvi.programs.batch import Batch
from pvi.progress import nats
from pvi.report import coefficient_table, render_coefficients, render_metrics, render_personal_metrics
from pvi.result import Result


def show_tables(tables: Tables, console: Console) -> None:
    """The clients and the notes of the tables."""
    frame = describe(tables)
    shown = Table(title="Clients", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title_justify="left")
    shown.add_column("client", overflow="fold")
    for name in frame.columns:
        shown.add_column(str(name), justify="right")
    for client, row in frame.iterrows():
        cells = [f"{value:.1%}" if key == "positives" else f"{value:g}" for key, value in row.items()]
        shown.add_row(escape(str(client)), *cells)
    console.print(shown)
    for note in tables.notes:
        console.print(f"Note: {note}", style="dim", highlight=False, markup=False)
    console.print(f"{len(tables.columns)} features; the target is {tables.target!r}.\n", highlight=False, markup=False)


def report(
    options: FitOptions, result: Result, holdout: Mapping[str, Batch], interrupted: bool, console: Console
) -> dict[str, pd.DataFrame]:
    """Coefficients, held-out metrics, and what to know about them; returns the metrics' tables by file name."""
    whose = " of the global posterior" if result.personal else ""
    console.print()
    console.print(render_coefficients(coefficient_table(result), f"Coefficients{whose}", console.width))
    for sentence in explanations(options):
        console.print(sentence, highlight=False, markup=False)
    hyperparameters = hyperparameter_frame(result)
    private, about_private = private_table(result)
    for table in (None if hyperparameters.empty else hyperparameter_table(hyperparameters), private):
        if table is not None:
            console.print()
            console.print(table)
    if about_private:
        console.print(about_private, highlight=False, markup=False)
    found: dict[str, pd.DataFrame] = {}
    if holdout:
        draws = output.draws_for(holdout)
        found[output.HELDOUT] = heldout_metrics(result, holdout, draws)
        shown = render_metrics(found[output.HELDOUT])
        if result.personal:
            found[output.PERSONAL] = personal_metrics(result, holdout, draws)
            shown = render_personal_metrics(found[output.PERSONAL])
        console.print()
        console.print(shown)
    rounds = result.history
    plural = "round" if len(rounds) == 1 else "rounds"
    name = result.elbo_name
    reached = f"{name[0].upper()}{name[1:]} {nats(result.elbo)} nats"
    console.print(f"{reached} after {len(rounds)} {plural}.", highlight=False)
    if "objective" in result.settings:
        whose = " with q_m client m's own posterior and q the global one" if result.personal else ""
        said = f"It is {result.settings['objective']}{whose}, no bound on the evidence."
        console.print(said, highlight=False, markup=False)
    for sentence in remarks(options, rounds):
        console.print(sentence, highlight=False, markup=False)
    for doubt in doubts(options, rounds, interrupted):
        console.print(doubt, style="yellow", highlight=False, markup=False)
    return found
