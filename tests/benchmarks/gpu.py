"""The comparisons on a GPU: µs a client-step, cost against clients and rows, unequal clients, memory of the device.

Run in the repository's root: ``PYTHONPATH=tests python -m benchmarks.gpu [--device cuda] [--quick] [--out FILE]``. The
tables are printed, and written to FILE where one is named. ``--only photos`` leaves all out but a minute of pFedBayes
and FOLA on photos, ``--only speed`` that minute.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.laplace_run import laplace_rounds
from benchmarks.parts import Part, comparisons
from benchmarks.personal_run import personal_rounds
from benchmarks.plans import ON_A_GPU, QUICKLY
from benchmarks.run import empty, play
from benchmarks.same_fits import same_fits
from benchmarks.tables import Report, section, write


def watched(part: Part, peaks: list[float]) -> Part:
    """The part, with the most that it took of the device's memory, in gigabytes."""

    def measured(report: Report) -> Iterator[str]:
        torch.cuda.reset_peak_memory_stats()
        yield from part(report)
        peaks.append(torch.cuda.max_memory_allocated() / 1e9)
        yield f"    at most {peaks[-1]:.2f} GB of the device's memory"

    return measured


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats: whether all of it runs")
    parser.add_argument("--out", type=Path, help="a document that is to hold the tables")
    parser.add_argument("--only", choices=["speed", "photos"], help="a part of it")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "There is no CUDA device here (torch.cuda.is_available() is false): pass --device cpu to run on the CPU."
        )
    torch.set_num_threads(1)
    device, plan = torch.device(options.device), QUICKLY if options.quick else ON_A_GPU
    peaks: list[float] = []
    parts = [] if options.only == "photos" else [*comparisons(plan, device), same_fits(device, options.quick)]
    photos = [personal_rounds(device, options.quick), laplace_rounds(device, options.quick)]
    parts += [] if options.only == "speed" else photos
    if device.type == "cuda":
        parts = [watched(part, peaks) for part in parts]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    lines = section(play(parts, empty(name, plan)))
    if peaks:
        lines += [f"At most {max(peaks):.2f} GB of the device's memory were in use.", ""]
    print("\n".join(lines))
    if options.out is not None:
        write(options.out, lines)


if __name__ == "__main__":
    main()
