"""``pvi algorithms`` says what the records say, and so does the documentation in the code."""

import inspect
import json
import re

import pytest

import pvi.cavities
from pvi.algorithms import ALGORITHMS

MODULES = {name: inspect.getmodule(build) for name, build in ALGORITHMS.items()}
FORMULA = {"prior alone": "p", "prior share": "p^(1/M)"}
"""Cavities that the documentation calls by their formula, the first words of the rule's own documentation."""
PHRASED = {"parameter average": "average of v", "subset-after-training": "all clients work, a random subset"}
"""Parts that the documentation describes where their names say little."""


def documented(name: str) -> dict[str, str]:
    """The column of an algorithm in the Markdown table of its module: part -> choice, all parts singular."""
    lines = [line.strip("| ").split(" | ") for line in MODULES[name].__doc__.split("\n") if line.startswith("|")]
    in_module = [other for other, module in MODULES.items() if module is MODULES[name]]
    column = 1 + in_module.index(name) if len(lines[0]) == 1 + len(in_module) else 1
    return {part: line[column] for line in lines[2:] for part in line[0].split(", ")}


def listed(call) -> list[dict]:
    outcome = call("algorithms", "--json")
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def name_of(part) -> str:
    """A function's name, or that of an object's class."""
    return part.__name__ if inspect.isfunction(part) else type(part).__name__


def test_json_has_the_records(call):
    rows = listed(call)
    assert [row["name"] for row in rows] == list(ALGORITHMS)
    for row in rows:
        record = ALGORITHMS[row["name"]]()
        for field in ("name", "damping", "rounds", "max_rounds", "fixed", "pooled", "alpha"):
            assert row[field] == getattr(record, field), field
        assert row["schedule"] == record.schedule.name
        assert row["cavity_rule"].replace(" ", "_") == record.cavity.__name__
        assert row["aggregator"].replace(" ", "") == name_of(record.aggregate).replace("_", "").lower()
        own = "any" if record.alpha == 0 else "alpha divergence"
        assert row["solver"] == (own if record.solver is None else record.solver.name)
        assert MODULES[row["name"]].__doc__.startswith(row["summary"])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_documented_parts_are_the_records(name, call):
    row = next(row for row in listed(call) if row["name"] == name)
    said = documented(name)
    assert set(said) - {"likelihood"} == {"cavity rule", "aggregator", "solver", "schedule"}
    cavity = row["cavity_rule"]
    if cavity in FORMULA:
        rule = getattr(pvi.cavities, cavity.replace(" ", "_"))
        assert rule.__doc__.startswith(f"{FORMULA[cavity]}:")
        assert re.search(rf"(?<!\w){re.escape(FORMULA[cavity])}(?!\^)", said["cavity rule"])
    else:
        assert said["cavity rule"].split(":")[0] == cavity
    assert said["aggregator"].startswith(PHRASED.get(row["aggregator"], row["aggregator"]))
    assert said["solver"].startswith("any") == (row["solver"] == "any")
    assert ("alpha" in said["solver"] or "the same" in said["solver"]) == (row["alpha"] > 0)
    if ALGORITHMS[name]().solver is not None:
        assert said["solver"].replace(" ", "-").startswith(row["solver"])
    if row["schedule"] in PHRASED:
        assert said["schedule"].startswith(PHRASED[row["schedule"]])
    elif said["schedule"] == "any":
        assert not row["fixed"]
    else:
        schedule, *more = said["schedule"].split(", ")
        assert schedule.replace(" ", "-") == row["schedule"]
        assert ("undamped" in more) == (row["damping"] == 1)
        assert ("one round" in more) == (row["max_rounds"] == 1 and schedule != "single pass")


def test_the_table(call):
    outcome = call("algorithms")
    assert outcome.exit_code == 0, outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 80
    for name in ALGORITHMS:
        assert sum(line.lstrip().startswith(f"{name} ") for line in outcome.output.splitlines()) == 2
    said = " ".join(outcome.output.split())
    for words in ("pvi any deletion product (synchronous) (0.2) (20)", "vcl any deletion product single-pass 1 1",
                  "global-vi any deletion product synchronous 1 (1)", "power-ep α (1) deletion product",
                  "fedavg point no location synchronous 1 (100) steps deletion average",
                  "(Ashman et al., 2022, algorithm 1)", "(Broderick et al., 2013)"):  # fmt: skip
        assert words in said
