import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from scipy import stats
from small_results import COLUMNS, SIZES, constrained, logistic, regression_data

import pvi
from pvi.report import coefficient_table, history_frame, render_coefficients, render_metrics


@pytest.fixture(scope="module")
def result():
    return logistic()


@pytest.mark.parametrize("guide", [None, "full"])
def test_coefficients_of_logistic_regression(guide):
    result = logistic(guide)
    table = coefficient_table(result).set_index("coefficient")
    assert list(table.index) == [*COLUMNS, "bias"]
    mean, sd = (torch.cat([part[0], part[1][None]]).numpy() for part in (
        (result.posterior.mean["weights"], result.posterior.mean["bias"]),
        (result.posterior.sd["weights"], result.posterior.sd["bias"]),
    ))  # fmt: skip
    law = stats.norm(mean, sd)
    assert np.allclose(table["mean"], mean)
    assert np.allclose(table["sd"], sd)
    assert np.allclose(table["lower"], law.ppf(0.025))
    assert np.allclose(table["upper"], law.ppf(0.975))
    assert np.allclose(table["p_direction"], np.maximum(law.cdf(0), law.sf(0)))
    assert np.allclose(table["odds_ratio"][:-1], np.exp(mean[:-1]))
    assert np.allclose(table["odds_ratio_upper"][:-1], np.exp(law.ppf(0.975)[:-1]))
    assert math.isnan(table.loc["bias", "odds_ratio"])


def test_ratios_only_where_they_are_ratios(result, tmp_path):
    counts = {name: (x, (3 * y).round()) for name, (x, y) in regression_data().items()}
    poisson = pvi.fit("poisson_regression", counts, rounds=1, columns=COLUMNS)
    assert "rate_ratio" in coefficient_table(poisson)
    linear = pvi.fit("linear_regression", regression_data(), rounds=1, columns=COLUMNS)
    assert not any("ratio" in name for name in coefficient_table(linear))
    result.save(tmp_path)
    assert coefficient_table(pvi.load(tmp_path)).equals(coefficient_table(result))


def test_a_probit_is_no_odds_ratio():
    import pyro
    import pyro.distributions as dist

    def probit(x, y=None):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            probability = torch.special.ndtr(x @ weights).clamp(1e-6, 1 - 1e-6)
            return pyro.sample("y", dist.Bernoulli(probability), obs=y)

    result = pvi.fit(probit, regression_data(), rounds=1, solver=pvi.solvers.SVI(steps=20), columns=COLUMNS)
    assert list(coefficient_table(result)["coefficient"]) == list(COLUMNS)
    assert "odds_ratio" not in coefficient_table(result)


def test_constrained_sites():
    table = coefficient_table(constrained()).set_index("coefficient")
    noise = table.loc["noise"]
    assert 0 < noise["lower"] < noise["mean"] < noise["upper"]
    assert math.isnan(noise["p_direction"])
    assert "odds_ratio" not in table


def test_history(result):
    frame = history_frame(result)
    assert list(frame["round"]) == [1, 2, 3, 4]
    assert list(frame["cumulative_communications"]) == [6, 12, 18, 24]
    assert frame["elbo"].iloc[-1] == result.elbo
    parts = [f"log_likelihood[{name}]" for name in SIZES]
    assert np.allclose(frame[parts].sum(axis=1) - frame["kl"], frame["elbo"])
    assert (frame[["rejected", "unconverged"]] == "").all().all()
    assert (frame[["accelerated", "max_staleness"]] == 0).all().all()
    assert not {"hyperparameters", "mixing", "clients"} & set(frame)


def test_history_of_the_complete_method(result, tmp_path):
    first, *others = result.history
    infos = dict(first.clients)
    infos["north"] = infos["north"]._replace(staleness=3, rejected="it broke")
    solver = infos["south"].solver._replace(converged=False, message="too few steps")
    infos["south"] = infos["south"]._replace(solver=solver)
    values = {"noise": 0.5, "centre": [1.0, 2.0], "table": [[3.0, 4.0], [5.0, 6.0]]}
    first = first._replace(clients=infos, mixing=(0.3, -0.1, 0.8), hyperparameters=values)
    made_up = replace(result, history=[first, *(record._replace(hyperparameters=values) for record in others)])
    frame = history_frame(made_up)
    assert list(frame["accelerated"]) == [3, 0, 0, 0]
    assert list(frame["max_staleness"]) == [3, 0, 0, 0]
    assert list(frame["rejected"]) == ["north", "", "", ""]
    assert list(frame["unconverged"]) == ["south", "", "", ""]
    assert (frame["hyperparameter[noise]"] == 0.5).all()
    assert frame.loc[0, ["hyperparameter[centre][0]", "hyperparameter[centre][1]"]].tolist() == [1, 2]
    assert [frame.loc[0, f"hyperparameter[table][{index}]"] for index in range(4)] == [3, 4, 5, 6]
    frame.to_csv(tmp_path / "history.csv", index=False)
    kinds = pd.read_csv(tmp_path / "history.csv", keep_default_na=False).dtypes
    assert [name for name, kind in kinds.items() if kind.kind not in "if"] == ["rejected", "unconverged"]


def rendered(table, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    return console.export_text()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(result, width):
    text = rendered(render_coefficients(coefficient_table(result), width=width), width)
    assert max(map(len, text.splitlines())) <= width
    assert "sex=f" in text
    holdout = pvi.report.heldout_metrics(result, regression_data(seed=1), num_samples=20)
    assert max(map(len, rendered(render_metrics(holdout), width).splitlines())) <= width


def test_numbers_are_not_cut_off(result):
    text = rendered(render_coefficients(coefficient_table(result)), 80)
    assert "…" not in text
    row = coefficient_table(result).iloc[0]
    assert f"{row['odds_ratio']:.2f} ({row['odds_ratio_lower']:.2f} to {row['odds_ratio_upper']:.2f})" in text


def test_large_and_tiny_numbers_are_scientific():
    names = ("coefficient", "mean", "sd", "lower", "upper", "p_direction")
    rows = [
        ("far", -3.61909033e70, 0.18, -3.61909033e70, -3.61909033e70, 1.0),
        ("further", 1.5e290, 2.34e6, 1.5e290, 1.5e290, 1.0),
        ("income", 1234567.0, 2300.0, 1230059.0, 1239075.0, 1.0),
        ("tiny", -4.567e-9, 1.2e-10, -4.8e-9, -4.3e-9, 1.0),
        ("plain", 999999.4, 23.0, 999954.3, 1000044.6, 1.0),
        ("zero", 0.0, 1.5, -2.94, 2.94, 0.5),
    ]
    text = rendered(render_coefficients(pd.DataFrame(rows, columns=names)), 80)
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert lines["far"] == ["-3.61909e+70", "0.18", "-3.61909e+70", "to", "-3.61909e+70", ">", "0.999"]
    assert lines["further"][:2] == ["1.50000e+290", "2.3e+06"]
    assert lines["income"][:5] == ["1.2346e+06", "2300", "1.2301e+06", "to", "1.2391e+06"]
    assert lines["tiny"][:5] == ["-4.57e-09", "1.2e-10", "-4.80e-09", "to", "-4.30e-09"]
    assert lines["plain"][:5] == ["999999", "23", "999954", "to", "1.00004e+06"]
    assert lines["zero"][:5] == ["0.0", "1.5", "-2.9", "to", "2.9"]
    metrics = {"rows": [8.0], "log_density": [-2.91384e129], "rmse": [1.234e300], "brier": [2.5e-8]}
    text = rendered(render_metrics(pd.DataFrame(metrics, index=["north"])), 80)
    assert all(number in text for number in ("-2.91384e+129", "1.23400e+300", "2.5e-08"))


def test_square_brackets_are_no_markup():
    import pyro
    import pyro.distributions as dist

    def two(x, y=None):
        scale = torch.ones(x.shape[1])
        first = pyro.sample("first", dist.Normal(0 * scale, scale).to_event(1))
        second = pyro.sample("second", dist.Normal(0 * scale, scale).to_event(1))
        with pyro.plate("rows", len(x)):
            return pyro.sample("y", dist.Bernoulli(logits=x @ (first + second)), obs=y)

    table = coefficient_table(pvi.fit(two, regression_data(), rounds=1, columns=COLUMNS))
    text = rendered(render_coefficients(table), 100)
    assert "first[age]" in text
    assert "second[sex=f]" in text
