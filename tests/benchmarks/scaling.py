"""How cost grows with clients and with rows, and what unequal clients cost."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from benchmarks.compare import Effort, compare
from benchmarks.measure import Contender, Spread, exponent, seconds, timings
from benchmarks.ours import CAPTURED, COMPILED, alike, prepare, together
from benchmarks.problems import Case, logistic
from benchmarks.targets import UNEQUAL, Verdict


class Row(NamedTuple):
    """A contender's median milliseconds a step of all clients at each size, and the exponent fitted to them."""

    contender: str
    costs: list[float]
    exponent: float


class Growth(NamedTuple):
    """Cost against a size that grows."""

    what: str
    sizes: list[int]
    rows: list[Row]


def growth(
    what: str,
    sizes: Sequence[int],
    case_of: Callable[[int], Case],
    device: torch.device,
    effort: Effort,
    names: Sequence[str],
) -> Iterator[str | Growth]:
    """What has been measured so far in words, then all of it."""
    costs: dict[str, list[float]] = {name: [] for name in names}
    for size in sizes:
        case = case_of(size)
        yield case.label
        found = compare(case, device, effort, names).timings
        for name in names:
            costs[name].append(found.cost(name).median * len(case.clients) / 1e3)
    yield Growth(what, list(sizes), [Row(name, values, exponent(sizes, values)) for name, values in costs.items()])


def many_clients(clients: int) -> Case:
    """Small models: 20 features and 20 rows a client, all of them in every step.

    The library draws its noise for about 200 such steps at once: few steps of very many clients leave up to a twentieth
    of their cost, that of drawing it, to the start of the solve.
    """
    return logistic(clients, features=20, rows=20, batch_size=None)


def many_rows(rows: int) -> Case:
    """Ten clients with so many rows each, all of them in every step."""
    case = logistic(10, features=20, rows=rows, batch_size=None)
    return case._replace(label=f"{case.label}, {rows:,} rows each")


def preparation(sizes: Sequence[int], device: torch.device) -> Growth:
    """Milliseconds that :func:`pvi.fit` needs to look at the clients' models before its first round."""
    costs = [1e3 * seconds(lambda size=size: prepare(many_clients(size), device), device) for size in sizes]  # type: ignore[misc]
    return Growth("ms before the first round, by clients", list(sizes), [Row("", costs, exponent(sizes, costs))])


def unequal(device: torch.device, effort: Effort, small: int, large: int, names: Sequence[str]) -> list[Verdict]:
    """Ten small clients and a large one against eleven equal ones with the same rows in total, all rows a step."""
    rows = [small] * 10 + [large]
    found: list[Verdict] = []
    for name in names:
        if name not in (CAPTURED, COMPILED):
            continue
        contenders: list[Contender] = []
        for label, sizes in (("unequal", rows), ("equal", [sum(rows) // len(rows)] * len(rows))):
            case = logistic(len(rows), rows=sizes, batch_size=None).to(device)
            contenders.append(together(case, alike(case, device), name == COMPILED)._replace(name=label))
        ratio: Spread = timings(contenders, effort.repeats, effort.seconds, device).ratio("unequal", "equal")
        what = f"unequal clients, ten of {small:,} rows and one of {large:,} / eleven equal ones, {name}"
        found.append(Verdict(what, ratio, UNEQUAL, True))
    return found
