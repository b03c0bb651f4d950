"""``pvi algorithms``: which algorithms there are, which parts each of them names, and the options of one."""

import inspect
import json
import re
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pvi.algorithms import ALGORITHMS, Algorithm
from pvi.cli.algorithm_options import description, options_of, options_table
from pvi.cli.errors import explained


@dataclass(frozen=True)
class Row:
    """One algorithm. ``alpha``: the divergence that a local solver minimises, 0 the variational one.

    ``solver`` is the algorithm's own by name; where it has none, "any" or, for ``alpha`` above 0, "alpha divergence".
    ``fixed``: schedule and damping are part of the algorithm, else defaults; ``max_rounds`` bounds its rounds.
    ``summary`` is the first line of the module, which may hold several algorithms; ``what`` the algorithm's own.
    """

    name: str
    solver: str
    cavity_rule: str
    aggregator: str
    schedule: str
    damping: float
    rounds: int
    max_rounds: int | None
    fixed: bool
    pooled: bool
    alpha: float
    summary: str
    what: str


def algorithms(
    name: Annotated[str | None, typer.Argument(help="One algorithm, whose options are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON: a list of objects; of one algorithm, it.")] = False,
) -> None:
    """List the algorithms and their parts, or the options of one."""
    if name is not None:
        with explained(debug=False):
            _show_one(name, as_json)
        return
    rows = [row(name) for name in ALGORITHMS]
    if as_json:
        typer.echo(json.dumps([vars(one) for one in rows], indent=1))
        return
    console = Console()
    console.print(parts_table(rows))
    console.print(
        "In brackets: defaults, which --schedule, --damping, --rounds and --alpha change; the rest is part of the "
        "algorithm. Solver α: one that minimises the alpha divergence in place of the variational one.\n",
        highlight=False,
        markup=False,
    )
    what = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    what.add_column("algorithm", style="bold", no_wrap=True)
    what.add_column("what it is")
    for one in rows:
        alone = sum(other.summary == one.summary for other in rows) == 1
        what.add_row(one.name, escape(one.summary if alone else f"{one.what}. {one.summary}"))
    console.print(what)
    console.print(
        "Choose with pvi fit --algorithm NAME. The options of one: pvi algorithms NAME.", highlight=False, markup=False
    )


def _show_one(name: str, as_json: bool) -> None:
    """What the algorithm is, and its options with their defaults; raises ``ValueError`` for an unknown name."""
    options, what = options_of(name), description(name)
    if as_json:
        said = {"name": name, "what": what, "options": [asdict(one) for one in options]}
        typer.echo(json.dumps(said, indent=1))
        return
    console = Console()
    console.print(f"{name}: {what}", highlight=False, markup=False)
    if not options:
        console.print("It has no options of its own for --set.", highlight=False)
        return
    console.print(options_table(options))
    example = f"{options[0].name}={options[0].default}"
    console.print(
        f"Change with pvi fit --algorithm {name} --set {example}; repeat --set.", highlight=False, markup=False
    )


def row(name: str) -> Row:
    """An algorithm's parts as its record has them, and the first lines of its documentation."""
    build = ALGORITHMS[name]
    found: Algorithm = build()
    module = inspect.getmodule(build)
    return Row(
        name=found.name,
        solver=_solver(found),
        cavity_rule=_spoken(found.cavity),
        aggregator=_spoken(found.aggregate),
        schedule=found.schedule.name,
        damping=found.damping,
        rounds=found.rounds,
        max_rounds=found.max_rounds,
        fixed=found.fixed,
        pooled=found.pooled,
        alpha=found.alpha,
        summary=_first_line(module),
        what=re.split(r"[;.]( |$)", _first_line(build))[0],
    )


def parts_table(rows: list[Row]) -> Table:
    """The parts, an algorithm a line."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("algorithm", style="bold", no_wrap=True)
    for name in ("solver", "cavity rule", "aggregator", "schedule", "damping", "rounds"):
        wraps = name in ("solver", "cavity rule", "aggregator")
        shown.add_column(name, no_wrap=not wraps, min_width=max(map(len, name.split())))
    for one in rows:
        solver = f"α ({one.alpha:g})" if one.alpha else one.solver.replace("-", " ")  # which may wrap
        order = re.sub(
            r"^(.{10,}?-)", r"\1\n", one.schedule
        )  # a long name takes two lines, or 80 columns are not enough
        schedule, damping = (part if one.fixed else f"({part})" for part in (order, f"{one.damping:g}"))
        rounds = f"{one.max_rounds}" if one.max_rounds is not None else f"({one.rounds})"
        shown.add_row(one.name, solver, one.cavity_rule, one.aggregator, schedule, damping, rounds)
    return shown


def _solver(algorithm: Algorithm) -> str:
    if algorithm.solver is not None:
        return algorithm.solver.name
    return "any" if algorithm.alpha == 0 else "alpha divergence"


def _spoken(part: object) -> str:
    """A function's name or, of an object, its class's, in words: ``ParameterAverage`` is a parameter average."""
    name: str = getattr(part, "__name__", re.sub(r"(?<!^)(?=[A-Z])", "_", type(part).__name__).lower())
    return name.replace("_", " ")


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").split("\n")[0].replace("``", "")
