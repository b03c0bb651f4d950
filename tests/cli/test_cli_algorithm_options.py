"""``pvi algorithms NAME`` lists every option of the signature, with what the documentation says of it."""

import inspect
import json

import pytest
from rich.cells import cell_len

from pvi.algorithms import ALGORITHMS
from pvi.cli import settings
from pvi.cli.algorithm_options import description, options_of


def described(name: str) -> dict[str, str]:
    return {one.name: one.what for one in options_of(name)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_option_is_listed(name, call):
    outcome = call("algorithms", name)
    assert outcome.exit_code == 0, outcome.output
    lines = outcome.output.splitlines()
    assert max(map(cell_len, lines)) <= 80  # Σ̂ is two characters, but one cell
    assert lines[0].startswith(f"{name}: ")
    build = ALGORITHMS[name]
    for option, part in inspect.signature(build).parameters.items():
        assert any(line.split()[:2] == [option, str(part.default).lower()] for line in lines), option
    for one in options_of(name):
        assert settings.read(name, build, [f"{one.name}={one.default}"])
        assert one.what
        assert "``" not in one.what
        assert ":func:" not in one.what + description(name)
    assert "as in fedavg" not in outcome.output


def test_what_is_said():
    fola = described("fola")
    assert fola["clients_per_round"] == "clients that work in a round, drawn at random; none: all."
    assert fola["batch_size"].endswith("within an epoch; none: all.")  # a text of several lines elsewhere
    assert fola["structure"].startswith('"diagonal", "full" (one Gaussian of full covariance')
    assert described("fola-offline") == fola  # whose documentation refers to it
    both = described("pfedbayes")
    assert both["learning_rate"] == both["global_learning_rate"] == "η_1 of q_i and η_2 of w_i."


def test_references_are_followed():
    averaging, ditto = described("fedavg"), described("ditto")
    assert ditto["spread"] == averaging["spread"] == described("pfedme")["spread"]
    assert ditto["epochs"] == f"{averaging['epochs']} A personal step follows each of them, on the same rows."
    assert described("fedprox")["learning_rate"] == averaging["learning_rate"]
    assert described("stochastic-ep") == described("power-ep") == {"alpha": "Power EP with the power alpha in (0, 1]."}
    assert description("stochastic-ep").endswith("alpha as in power-ep.")


def test_without_a_list_of_arguments():
    assert described("bcm-split") == {"shares": "'clients' or 'rows'"}
    assert '"rows": p^(n_m / n)' in description("bcm-split")
    assert options_of("pvi") == []


def test_no_options(call):
    assert "It has no options" in call("algorithms", "pvi").output
    assert "pvi algorithms NAME" in " ".join(call("algorithms").output.split())


def test_as_json(call):
    said = json.loads(call("algorithms", "fedavg", "--json").stdout)
    assert said["name"] == "fedavg"
    assert said["options"][2]["name"] == "batch_size"
    assert said["options"][2]["default"] == "20"


def test_unknown_names(call):
    outcome = call("algorithms", "adam")
    assert outcome.exit_code == 2
    assert outcome.output.startswith("Error: unknown algorithm 'adam'; there are pvi, power-ep, ")
    assert len(outcome.output.splitlines()) == 1
    wrong = call("fit", "a.csv", "--target", "y", "--algorithm", "fola", "--set", "rate=1")
    assert "keep_local" in wrong.output
    assert "see pvi algorithms fola" in wrong.output
