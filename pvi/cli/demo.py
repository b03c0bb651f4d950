"""``pvi demo``: five hospitals that share no patient, and what they learn together."""

import shlex
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.panel import Panel

import pvi
from pvi.cli.errors import explained
from pvi.cli.options import FitOptions
from pvi.cli.output import check_folder
from pvi.cli.pipeline import load_tables, run_fit
from pvi.data import Tables

HOSPITALS = ("north", "east", "south", "west", "centre")
OPTIONS = {"target": "malignant", "guide": "full", "schedule": "sequential", "damping": 1.0, "rounds": 5}


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the results.")] = Path("demo"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder that holds other things.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Five hospitals learn to tell malignant from benign tumours without sharing a patient; under a minute."""
    console = Console()
    with explained(debug):
        console.print(
            Panel(
                "569 tumours were measured (30 numbers each, Wisconsin, 1993). They are split over five hospitals by "
                "k-means, so that every hospital sees another kind of patient. No hospital shows its rows to anybody: "
                "in turn each takes the posterior so far, works its own rows in, and sends back a Gaussian factor, "
                "what its data say about the coefficients. The server multiplies the factors. What is lost against "
                "pooling all rows?",
                title="Partitioned variational inference",
            )
        )
        check_folder(out, overwrite)
        files = write_hospitals(out / "data")
        options = FitOptions(files=tuple(str(path) for path in files), **OPTIONS)  # type: ignore[arg-type]
        console.print("The same as:", style="bold")
        console.print(f"  {command(options, out)}\n", highlight=False, markup=False)
        try:
            played = run_fit(options, out, True, True, console)
        except KeyboardInterrupt:
            console.print("Stopped before the first round was over.", style="yellow")
            raise typer.Exit(130) from None
        console.print("\nFor comparison, the same fit with all rows in one place, as if privacy did not matter ...")
        best = pooled_elbo(load_tables(options))
        history = played.result.history
        messages = sum(record.communications for record in history)
        size = sum(record.bytes_sent for record in history)
        console.print(
            f"ELBO pooled {best:.4f} nats, federated {played.result.elbo:.4f} nats: a gap of "
            f"{best - played.result.elbo:.1g} nats, after {messages} messages ({size / 1000:.0f} kB in all), none of "
            "which held a patient's row. The ELBO bounds the log evidence from below; a gap of 0.1 nats would be "
            "invisible in any number above.",
            highlight=False,
        )
        console.print(f"Pictures: {out}/forest.png and {out}/convergence.png", highlight=False, markup=False)


def write_hospitals(folder: Path) -> list[Path]:
    """scikit-learn's breast-cancer data as one CSV a hospital, split by k-means on the standardised inputs."""
    from sklearn.cluster import KMeans  # slow to import
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).frame
    inputs = frame.drop(columns="target")
    scaled = (inputs - inputs.mean()) / inputs.std()
    labels = KMeans(len(HOSPITALS), n_init=5, random_state=0).fit_predict(scaled.to_numpy())
    frame["malignant"] = 1 - frame.pop("target")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.csv" for name in HOSPITALS]
    for index, path in enumerate(paths):
        frame[labels == index].to_csv(path, index=False)
    return paths


def pooled_elbo(tables: Tables) -> float:
    """The free energy of global VI: the same model and family, one client that holds all training rows."""
    x, y = (torch.cat([pair[part] for pair in tables.training.values()]) for part in (0, 1))
    return pvi.fit("logistic_regression", {"all": (x, y)}, guide=OPTIONS["guide"], damping=1.0, rounds=2).elbo


def command(options: FitOptions, out: Path) -> str:
    """The ``pvi fit`` that does the same, for a shell."""
    said = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in OPTIONS.items())
    folder = Path(options.files[0]).parent
    return f"pvi fit {shlex.quote(str(folder))}/*.csv {said} --out {shlex.quote(str(out))}"
