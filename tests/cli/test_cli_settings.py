"""``--set name=value``: options of an algorithm, each of the type that its function asks for."""

import inspect
import json
from typing import Literal

import pytest
from test_cli_parts import described

import pvi
from pvi.algorithms import ALGORITHMS
from pvi.cli import parts, settings
from pvi.cli.checks import check
from pvi.cli.fit import _options
from pvi.cli.options import FitOptions


def options(*texts: str, algorithm: str = "pfedbayes", **more: object) -> FitOptions:
    return FitOptions(files=("a.csv",), target="died", algorithm=algorithm, set=texts, **more)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), {}),
        (("zeta=1",), {"zeta": 1.0}),
        (("zeta=1", " average = moments ", "initial_rho=none"), {"zeta": 1, "average": "moments", "initial_rho": None}),
        (("keep_optimisers=false", "local_reparameterisation=True"),
         {"keep_optimisers": False, "local_reparameterisation": True}),
        (("batch_size=None", "subset=3", "learning_rate=1e-2"),
         {"batch_size": None, "subset": 3, "learning_rate": 0.01}),
        (("kl_scale=batch",), {"kl_scale": "batch"}),
        (("kl_scale=0.5", "optimiser=sgd"), {"kl_scale": 0.5, "optimiser": "sgd"}),
    ],
)  # fmt: skip
def test_options_of_pfedbayes(texts, expected):
    given = options(*texts)
    check(given)
    assert described(parts.algorithm(given)) == described(pvi.PFedBayes(**expected))


def test_options_of_others():
    assert parts.algorithm(options("shares=rows", algorithm="bcm-split")) == pvi.BCMSplit(shares="rows")
    assert parts.algorithm(options("alpha=0.5", algorithm="power-ep")) == pvi.PowerEP(0.5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_default_can_be_written(name):
    build = ALGORITHMS[name]
    defaults = {key: part.default for key, part in inspect.signature(build).parameters.items()}
    texts = [f"{key}={str(value).lower()}" for key, value in defaults.items()]
    assert settings.read(name, build, texts) == defaults


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("zeta",), "write name=value"),
        (("=1",), "write name=value"),
        (("eta=1",), "no option 'eta'; there are zeta, local_iterations"),
        (("zeta=much",), "zeta is a number"),
        (("zeta=true",), "zeta is a number"),
        (("zeta=none",), "zeta is a number"),
        (("zeta=",), "zeta is a number"),
        (("subset=2.5",), "subset is a whole number"),
        (("batch_size=some",), "batch_size is a whole number or none"),
        (("keep_optimisers=1",), "keep_optimisers is true or false"),
        (("average=median",), "average is 'parameters' or 'moments'"),
        (("kl_scale=none",), "kl_scale is 'paper' or 'iterations' or 'batch' or a number"),
        (("zeta=1", "zeta=2"), "'zeta' is said twice"),
        (("zeta=-1",), "--set zeta=-1: "),
        (("subset=3", "zeta=nan"), "--set zeta=nan: "),
        (("zeta=1", "subset=0"), "--set subset=0: "),
        (("optimiser=lbfgs",), "--set optimiser=lbfgs: "),
    ],
)
def test_what_is_wrong_is_named(texts, said):
    with pytest.raises(ValueError, match=r"^--set") as caught:
        check(options(*texts))
    assert said in str(caught.value)


def test_algorithms_without_the_option():
    with pytest.raises(ValueError, match="algorithm 'pvi' has no option 'zeta'; it has none"):
        check(options("zeta=1", algorithm="pvi"))
    with pytest.raises(ValueError, match="say the same"):
        check(options("alpha=1", algorithm="power-ep", alpha=0.5))


def test_types_that_a_command_line_cannot_say():
    def build(rule: dict = {}, size: int | Literal[5] = 5) -> pvi.Algorithm:  # noqa: B006
        return pvi.PVI()

    with pytest.raises(ValueError, match="rule cannot be given on the command line"):
        settings.read("mine", build, ["rule=1"])
    assert settings.read("mine", build, ["size=6"]) == {"size": 6}


def test_a_config_is_repeated_with_each_option_by_itself(tmp_path):
    given = {"files": ["a.csv"], "target": "died", "algorithm": "pfedbayes", "set": ["zeta=1", "subset=3"]}
    assert _options(given, None, None).set == ("zeta=1", "subset=3")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"format": 1, "options": given, "files": {}}))
    assert _options({}, path, None).set == ("zeta=1", "subset=3")
    assert _options({"set": ["zeta=2"]}, path, None).set == ("zeta=2", "subset=3")
    other = _options({"algorithm": "pvi"}, path, None)
    assert (other.algorithm, other.set) == ("pvi", ())


def test_the_command_line_says_it(call, hospitals, tmp_path):
    assert "--set " in call("fit", "--help").output
    common = ("fit", *hospitals, "--target", "died", "--out", tmp_path / "run")
    outcome = call(*common, "--algorithm", "pfedbayes", "--set", "zeta=small")
    assert outcome.exit_code == 2
    assert "zeta is a number" in outcome.output
    assert not (tmp_path / "run").exists()
