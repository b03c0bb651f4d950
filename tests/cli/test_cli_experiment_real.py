"""``pvi experiment`` on the real tables: optima that are known from elsewhere, and a small slice of everything."""

import shlex

import pandas as pd
import pytest
from test_cli_experiment import OTHERS, UCI

CREDIT = "uci --preset quick --dataset credit --seeds 1 --rounds 2 --steps 20"


def optimum(call, folder, dataset):
    """The last line of the exact optimum at the first seed, all training rows at one client."""
    line = f"uci --dataset {dataset} --clients 1 --scale all --seeds 1 --rounds 1 --only 'PVI synchronous'"
    outcome = call("experiment", *shlex.split(line), "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    assert "no: " not in outcome.output.split("Beside the paper")[1]
    return pd.read_csv(folder / "curves.csv").query("method == 'global VI, exact'").iloc[-1]


@pytest.mark.parametrize(
    ("dataset", "elbo", "log_likelihood", "accuracy"),
    [
        ("credit", -205.67, -0.3275, 0.8538),
        pytest.param("bank", -8855.00, -0.2318, 0.9037, marks=pytest.mark.slow),
        pytest.param("adult.data", -8441.69, -0.3184, 0.8517, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("data")
def test_known_optima(call, tmp_path, dataset, elbo, log_likelihood, accuracy):
    """An independent computation with NumPy and quadrature."""
    found = optimum(call, tmp_path, dataset)
    assert found["elbo"] == pytest.approx(elbo, abs=0.05)
    assert found["log_likelihood"] == pytest.approx(log_likelihood, abs=0.001)
    assert found["accuracy"] == pytest.approx(accuracy, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "methods"),
    [
        (CREDIT, UCI),
        (f"{CREDIT} --split 0.75,0.95", UCI),
        ("icu --preset quick --stays 400 --rounds 2", ["global VI", *OTHERS]),
        ("icu --preset quick --stays 400 --rounds 2 --clients unit", ["global VI", *OTHERS]),
        ("icu --preset quick --stays 400 --rounds 2 --model bnn --steps 5", ["global VI", *OTHERS]),
        ("mnist --preset quick --rows 300 --rounds 2 --passes 1 --epochs 1 --samples 5", ["global VI", *OTHERS]),
        ("mnist --preset quick --rows 300 --rounds 2 --passes 1 --epochs 1 --samples 5 --partition digits",
         ["global VI", *OTHERS]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("data")
def test_real_data(call, tmp_path, line, methods):
    outcome = call("experiment", *shlex.split(line), "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert pd.read_csv(tmp_path / "table.csv")["method"].tolist() == methods
    curves = pd.read_csv(tmp_path / "curves.csv")
    metric = "error" if line.startswith("mnist") else "accuracy"
    assert curves[metric].between(0, 1).all()
