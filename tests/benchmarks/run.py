"""All speed benchmarks on the CPU; the tables go into docs/benchmarks.md.

Run by ``make bench``, or ``PVI_DATA=... PYTHONPATH=tests python -m benchmarks.run [--quick] [--out FILE]`` in the
repository's root.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.parts import Part, comparisons, whole_rounds
from benchmarks.plans import IN_FULL, QUICKLY, Plan
from benchmarks.tables import Report, section, spread, write
from benchmarks.targets import verdicts

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def play(parts: Sequence[Part], report: Report) -> Report:
    """All parts, with their progress on the terminal; the targets last."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(width=120)) as progress:
        task = progress.add_task("speed benchmarks", total=len(parts))
        for part in parts:
            for line in part(report):
                progress.console.print(line, highlight=False)
            progress.advance(task)
        report = report._replace(verdicts=[*verdicts(report.compared), *report.verdicts])
        for one in report.verdicts:
            mark = "[green]met[/]" if one.met else "[red]missed[/]"
            progress.console.print(f"{mark} {one.what}: {spread(one.found)}", highlight=False)
    return report


def empty(device: str, plan: Plan) -> Report:
    """A report with nothing in it yet."""
    return Report(device, plan.effort, plan.parameters, [], [], [], [], [], {}, plan.adult[0], [])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: whether all of it runs")
    parser.add_argument("--out", type=Path, default=DOCUMENT, help="the document that holds the tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan, device = QUICKLY if options.quick else IN_FULL, torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        if not options.quick:
            # Compiling is timed as it is the first time, not from what an earlier run left behind.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        report = play([*comparisons(plan, device), *whole_rounds(plan, device)], empty("CPU", plan))
    write(options.out, section(report))


if __name__ == "__main__":
    main()
