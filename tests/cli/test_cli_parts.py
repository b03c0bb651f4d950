"""What options become: algorithms, schedules, damping, acceleration; what is left out is the algorithm's own."""

import re
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

import pvi
from pvi.algorithms import ALGORITHMS
from pvi.cli import parts
from pvi.cli.checks import check
from pvi.cli.fit import _options
from pvi.cli.options import FitOptions
from pvi.problem import GUIDES
from pvi.schedules import SCHEDULES, Asynchronous, RandomSubset, Sequential, SinglePass, Synchronous
from pvi.solvers import SOLVERS

ROOT = Path(__file__).parents[2]


def options(**more: object) -> FitOptions:
    return FitOptions(files=("a.csv",), target="died", **more)


def described(algorithm: pvi.Algorithm) -> dict[str, object]:
    """An algorithm's fields, its start as what it was made of: partial functions do not compare."""
    start = algorithm.start
    made = (start.func, start.args, start.keywords) if isinstance(start, partial) else start
    return {field.name: getattr(algorithm, field.name) for field in fields(algorithm)} | {"start": made}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_left_out_is_the_algorithms_own(name):
    given = options(algorithm=name)
    check(given)
    assert described(parts.algorithm(given)) == described(ALGORITHMS[name]())
    assert (parts.schedule(given), parts.damping(given), parts.acceleration(given), parts.learn(given)) == (None,) * 4
    assert parts.rounds(given) == ALGORITHMS[name]().rounds
    assert parts.rounds(options(algorithm=name, rounds=7)) == 7


def test_alpha():
    assert parts.algorithm(options(algorithm="power-ep", alpha=0.5)) == pvi.PowerEP(0.5)
    assert parts.algorithm(options(algorithm="stochastic-ep", alpha=0.25)).alpha == 0.25


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"schedule": "synchronous"}, Synchronous()),
        ({"schedule": "synchronous", "latency": ("1", "2.5")}, Synchronous(latency=[1.0, 2.5])),
        ({"schedule": "sequential"}, Sequential()),
        ({"schedule": "single-pass"}, SinglePass()),
        ({"schedule": "shuffled", "seed": 3}, Sequential(order="shuffled", seed=3)),
        ({"schedule": "random-subset", "subset_size": 2, "seed": 3}, RandomSubset(size=2, seed=3)),
        ({"schedule": "asynchronous"}, Asynchronous()),
        ({"schedule": "asynchronous", "latency": ("1", "10")}, Asynchronous(latency=[1.0, 10.0])),
        (
            {"schedule": "asynchronous", "latency": ("a=1", " b = c =10")},
            Asynchronous(latency={"a": 1.0, "b = c": 10.0}),
        ),
    ],
)
def test_schedules(given, expected):
    found = parts.schedule(options(**{"seed": 0} | given))
    assert type(found) is type(expected)
    assert found.name == expected.name
    clients = ("a", "b = c")
    for index in range(3):
        assert list(found.events(clients, index)) == list(expected.events(clients, index))


def test_every_schedule_can_be_named():
    assert set(parts.NAMED) == {*SCHEDULES, "random-subset"}
    for name in SCHEDULES:
        check(options(schedule=name))


def test_a_schedule_with_one_round_needs_no_rounds():
    assert parts.rounds(options(schedule="single-pass")) == 1
    assert parts.rounds(options(schedule="sequential")) == 20


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (0.3, 0.3),
        ("auto", pvi.Auto()),
        ("decay:0.5", pvi.Decay(0.5)),
        ("decay:0.5:0.2", pvi.Decay(0.5, 0.2)),
        ("decay:1:0.2:0.5", pvi.Decay(1.0, 0.2, 0.5)),
    ],
)
def test_damping(said, expected):
    assert parts.damping(options(damping=said)) == expected


def test_a_number_for_the_damping_stays_a_number():
    given = {"files": ["a.csv"], "target": "died"}
    assert _options(given | {"damping": "0.3"}, None, None).damping == 0.3
    assert _options(given | {"damping": "auto"}, None, None).damping == "auto"


def test_acceleration_and_learning():
    assert parts.acceleration(options(acceleration="anderson")) == pvi.Anderson()
    assert parts.acceleration(options(acceleration="anderson", memory=3)) == pvi.Anderson(memory=3)
    assert parts.learn(options(learn=("all",))) == "all"
    assert parts.learn(options(learn=("none",))) == []
    assert parts.learn(options(learn=("scale", "noise"))) == ["scale", "noise"]


def test_every_guide_and_solver_can_be_named():
    for name in GUIDES:
        check(options(guide=name))
    for name in SOLVERS:
        check(options(solver=name))
        assert type(options(solver=name).local_solver()) is SOLVERS[name]


def test_the_readme_names_options_and_commands_that_there_are(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = {}
    for line in readme.splitlines():
        # An option that stands alone in the text is one of `pvi fit`.
        experiment = re.search(r"pvi experiment ([a-z]+)", line)
        command = ("experiment", experiment[1]) if experiment else ("fit",)
        for option in re.findall(r"--[a-z-]+", line):
            shown[command] = shown.get(command) or call(*command, "--help").output
            assert f"{option} " in shown[command] or option == "--help"
    assert ("experiment", "uci") in shown
    for command in re.findall(r"pvi ([a-z]+)", readme):
        known = ("fit", "predict", "algorithms", "models", "experiment")
        assert command in known or f"import pvi {command}" in readme
    for name in re.findall(r"--algorithm ([a-z-]+)", readme):
        assert name in ALGORITHMS
