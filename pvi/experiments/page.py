"""An experiment's page: the table and the pictures beside what the paper says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pvi.diagnostics import heldout_probabilities, reliability
from pvi.experiments.claims import answer, answered
from pvi.experiments.figures import plot_curves
from pvi.experiments.folder import OWN_PICTURE, PARTITION, PICTURE, RELIABILITY, REPORT, TABLE
from pvi.experiments.play import Curves
from pvi.experiments.protocol import Experiment, Summarised
from pvi.experiments.summary import differences, numbers, table

OVER_SEEDS = "means over the seeds with 95 % intervals (Student's t)"


def write_report(
    folder: Path,
    experiment: Experiment,
    curves: pd.DataFrame,
    settings: Mapping[str, Any],
    notes: tuple[str, ...],
    reference: str | None,
    complete: bool,
) -> None:
    """The table, the picture, and a page that holds both beside what the paper says."""
    found = table(curves, experiment.metrics)
    numbers(curves, experiment.metrics).to_csv(folder / TABLE)
    plot_curves(curves, experiment.metrics, experiment.title, folder / PICTURE, reference)
    if isinstance(experiment, Summarised):
        experiment.summarise(folder, curves)
    lines = [f"# {experiment.title}", "", f"    {settings['command']}", ""]
    if not complete:
        lines += ["**Stopped early: the table holds what was finished by then; `--resume` goes on.**", ""]
    if settings["scaled_from_full"]:
        lines += [f"Differs from the full size: {', '.join(settings['scaled_from_full'])}.", ""]
    lines += [*_markdown(found.reset_index()), "", f"Last rounds; {OVER_SEEDS}.", ""]
    compared = differences(curves, reference or str(curves["method"].iloc[0]), experiment.metrics)
    if len(compared) and len(set(curves["seed"])) > 1:
        lines += ["Differences at the same seed:", "", *_markdown(compared.reset_index()), ""]
    said = answered(experiment.claims(), curves)
    if said:
        rows = [
            {"published": text, "measured": verdict.measured, "agrees": answer(verdict)}
            for text, verdicts in said.items()
            for verdict in verdicts
        ]
        lines += ["## Beside the paper", "", *_markdown(pd.DataFrame(rows)), ""]
    lines += [f"![Curves]({PICTURE})", ""]
    if (folder / PARTITION).exists():
        lines += [f"![Who holds what]({PARTITION})", ""]
    for prefix, label in ((RELIABILITY, "Calibration"), (OWN_PICTURE, "")):
        shown = [f"![{label or path.stem}]({path.name})" for path in sorted(folder.glob(f"{prefix}*.png"))]
        lines += [*shown, ""] if shown else []
    if notes:
        lines += ["## Notes", "", *[f"- {note}" for note in notes], ""]
    (folder / REPORT).write_text("\n".join(lines), encoding="utf-8")


def draw_reliability(folder: Path, part: Curves) -> None:
    """How well calibrated a method's last predictions are, where it predicts classes."""
    if np.isfinite(part.records[-1].get("ece", np.nan)):
        name = "-".join("".join(sign if sign.isalnum() else " " for sign in part.method.lower()).split())
        p, y = heldout_probabilities(part.result, part.setting.test)
        reliability(p, y, folder / f"{RELIABILITY}{name}.png", title=part.method)


def _markdown(rows: pd.DataFrame) -> list[str]:
    """A table in Markdown."""
    head = [str(name) for name in rows.columns]
    body = [[str(value).replace("|", "\\|") for value in row] for row in rows.itertuples(index=False)]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]
