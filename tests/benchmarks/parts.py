"""The benchmarks one after the other: each measures, tells how it went, and adds its numbers to the report."""

from collections.abc import Callable, Iterator

import torch

from benchmarks import adult_run, memory
from benchmarks.compare import ALL, compare
from benchmarks.measure import Spread, exponent
from benchmarks.measure import spread as spread_of
from benchmarks.ours import LOOP
from benchmarks.plans import Plan
from benchmarks.scaling import Growth, growth, many_clients, many_rows, preparation, unequal
from benchmarks.tables import Report, number, spread
from benchmarks.targets import ADULT_SECONDS, LINEAR, Verdict

Part = Callable[[Report], Iterator[str]]
"""Yields lines for the reader while it works."""
MANY = 10_000
"""Clients whose memory is bounded."""


def comparisons(plan: Plan, device: torch.device) -> list[Part]:
    """Every case, then cost against clients and rows, and unequal clients."""

    def case(make: int) -> Part:
        def part(report: Report) -> Iterator[str]:
            found = compare(plan.cases[make](), device, plan.effort)
            report.compared.append(found)
            yield f"{found.case} (µs a client-step)"
            yield from (f"    {name:24} {spread(found.timings.cost(name))}" for name in ALL)

        return part

    def grown(what: str, sizes: tuple[int, ...], clients: bool) -> Part:
        def part(report: Report) -> Iterator[str]:
            for found in growth(what, sizes, many_clients if clients else many_rows, device, plan.effort, plan.grown):
                if isinstance(found, Growth):
                    report.growths.append(found)
                    yield from (f"    {row.contender:24} exponent {row.exponent:.2f}" for row in found.rows)
                else:
                    yield found

        return part

    def uneven(report: Report) -> Iterator[str]:
        found = unequal(device, plan.effort, *plan.unequal, plan.grown)
        report.verdicts.extend(found)
        yield from (f"{one.what}: {spread(one.found)}" for one in found)

    return [
        *[case(index) for index in range(len(plan.cases))],
        grown("ms a step of all clients, by clients (20 features, 20 rows)", plan.clients, True),
        grown("ms a step of ten clients, by rows a client (20 features)", plan.rows, False),
        uneven,
    ]


def whole_rounds(plan: Plan, device: torch.device) -> list[Part]:
    """What a round costs beside its steps: looking at the models, memory, the server's part; and Adult."""

    def prepared(report: Report) -> Iterator[str]:
        found = preparation(plan.prepared, device)
        report.growths.append(found)
        yield f"{found.what}: {', '.join(map(number, found.rows[0].costs))}, exponent {found.rows[0].exponent:.2f}"

    def remembered(report: Report) -> Iterator[str]:
        for peak in memory.peaks(plan.peaks, parameters=plan.parameters):
            report.peaks.append(peak)
            yield f"{peak.number:,} clients: {peak.peak:.2f} GB, server {number(peak.server)} s"
            if peak.number == MANY:
                what = f"{MANY:,} clients, {plan.parameters:,} shared parameters: gigabytes"
                report.verdicts.append(Verdict(what, Spread(peak.peak, peak.peak, peak.peak), memory.LIMIT, True))
        slope = exponent([one.number for one in report.peaks], [one.server for one in report.peaks])
        what = "the server's seconds against clients: exponent"
        report.verdicts.append(Verdict(what, Spread(slope, slope, slope), LINEAR, True))

    def adult(report: Report) -> Iterator[str]:
        report.adult.update(adult_run.seconds(*plan.adult))
        if not report.adult:
            yield "Adult is left out: PVI_DATA does not say where its files are"
        for name, spent in report.adult.items():
            taken = spread_of([one.processor for one in spent])
            yield f"Adult, {name}: {spread(taken)} s of the processor"
            if LOOP not in name:
                what = f"Adult, split B, {plan.adult[0]} rounds, {name}: seconds"
                report.verdicts.append(Verdict(what, taken, ADULT_SECONDS, True))

    return [prepared, remembered, adult]
