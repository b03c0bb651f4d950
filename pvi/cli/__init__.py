"""The ``pvi`` command."""

import typer

from pvi.cli import algorithms, demo, experiment, fit, models, predict

app = typer.Typer(
    help="Federated Bayesian inference: data stay with their clients, the answer is the posterior that pooling all "
    "rows would have given.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(fit.fit)
app.command()(predict.predict)
app.command()(models.models)
app.command()(algorithms.algorithms)
app.command()(demo.demo)
app.add_typer(experiment.app, name="experiment")
