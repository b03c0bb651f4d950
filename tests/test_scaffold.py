"""SCAFFOLD against plain loops, FedAvg, and the optimum that FedAvg misses."""

import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, START, clients, quadratic, shares, theta_of

import pvi
from pvi.algorithms.scaffold import SCAFFOLD


def by_hand(data, rounds, steps, eta, eta_g=1.0, weights=None, worked=None):
    """The published algorithm; ``worked`` are the clients of each round."""
    theta, c, own = START, START, [START for _ in data]
    for r in range(rounds):
        asked = range(len(data)) if worked is None else worked[r]
        ends, changes = [], []
        for i in asked:
            h, g = quadratic(*data[i])
            y = theta
            for _ in range(steps):
                y = y - eta * (h @ y - g - own[i] + c)
            new = own[i] - c + (theta - y) / (steps * eta)
            ends.append(y)
            changes.append(new - own[i])
            own[i] = new
        w = torch.full((len(ends),), 1 / len(ends), dtype=DOUBLE) if weights is None else weights
        theta = theta + eta_g * (w @ (torch.stack(ends) - theta))
        c = c + torch.stack(changes).sum(0) / len(data)
    return theta


@pytest.mark.parametrize("executor", ["loop", "vectorised"])
@pytest.mark.parametrize("options", [{}, {"server_learning_rate": 0.5}, {"weights": "rows"}], ids=str)
def test_the_published_steps(options, executor):
    data = clients()
    algorithm = SCAFFOLD(4, batch_size=None, learning_rate=0.02, **options)
    result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=5, executor=executor)
    weights = shares(data) if options.get("weights") == "rows" else None
    expected = by_hand(data, 5, 4, 0.02, options.get("server_learning_rate", 1.0), weights)
    torch.testing.assert_close(theta_of(result.posterior), expected, rtol=0, atol=1e-10)


def test_a_subset_changes_the_mean_of_all_control_variates():
    data = clients()
    algorithm = SCAFFOLD(4, batch_size=None, learning_rate=0.02, clients_per_round=2, subset_seed=1)
    result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=6)
    worked = [[int(name.removeprefix("client ")) for name in record.clients] for record in result.history]
    assert len({tuple(pair) for pair in worked}) > 1
    expected = by_hand(data, 6, 4, 0.02, worked=worked)
    torch.testing.assert_close(theta_of(result.posterior), expected, rtol=0, atol=1e-10)


def test_one_client_is_fedavg():
    """c_i = c: nothing is corrected."""
    options = {"epochs": 2, "batch_size": 7, "learning_rate": 0.02}
    runs = [pvi.fit(MODEL, clients((30,)), algorithm=row(**options), rounds=4) for row in (SCAFFOLD, pvi.FedAvg)]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=0, atol=1e-10)


def test_the_first_round_is_fedavgs():
    options = {"local_iterations": 6, "batch_size": 7, "learning_rate": 0.02, "weights": "equal"}
    runs = [pvi.fit(MODEL, clients(), algorithm=row(**options), rounds=1) for row in (SCAFFOLD, pvi.FedAvg)]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=0, atol=1e-10)


def test_it_finds_the_optimum_that_fedavg_misses():
    data = clients()
    h, g = (torch.stack(parts).mean(0) for parts in zip(*[quadratic(*client) for client in data], strict=True))
    best = torch.linalg.solve(h, g)
    options = {"local_iterations": 10, "batch_size": None, "learning_rate": 0.02, "weights": "equal"}
    found, missed = (
        theta_of(pvi.fit(MODEL, data, algorithm=row(**options), rounds=40, executor="vectorised").posterior)
        for row in (SCAFFOLD, pvi.FedAvg)
    )
    assert (found - best).abs().max() < 1e-8
    assert (missed - best).abs().max() > 0.05


@pytest.mark.parametrize("options", [{"local_iterations": 5}, {"epochs": 2}], ids=str)
def test_executors_agree(options):
    algorithm = SCAFFOLD(batch_size=7, learning_rate=0.02, **options)
    runs = [
        pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=3, executor=executor, seed=5)
        for executor in ("loop", "vectorised")
    ]
    assert [{info.executor for info in run.history[-1].clients.values()} for run in runs] == [{"loop"}, {"vectorised"}]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=1e-10, atol=1e-10)


def test_what_a_run_says():
    result = pvi.fit(MODEL, clients(), algorithm=SCAFFOLD(), rounds=1)
    assert result.settings["algorithm"] == "scaffold"
    assert result.settings["objective"] == "Σ_m E_q[log p(y_m | θ)]"
    assert result.settings["options"] == {
        "local_iterations": 20, "epochs": None, "batch_size": 20, "learning_rate": 0.01
    }  # fmt: skip
    assert result.personal == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, r"SCAFFOLD: learning_rate is a finite number above 0, got 0.0"),
        ({"learning_rate": -1}, r"SCAFFOLD: learning_rate is a finite number from 0, got -1"),
        ({"local_iterations": 0}, r"SCAFFOLD: local_iterations must be a whole number, at least 1, got 0"),
        ({"local_iterations": 5, "epochs": 1}, r"SCAFFOLD: give local_iterations or epochs, one of them"),
        ({"batch_size": 1.5}, r"SCAFFOLD: batch_size must be a whole number"),
        ({"server_learning_rate": 1.5}, r"SCAFFOLD: server_learning_rate lies in \(0, 1\], got 1.5"),
        ({"weights": "labels"}, r"weights is 'rows' or 'equal', got 'labels'"),
        ({"clients_per_round": 0}, r"SCAFFOLD: clients_per_round is a whole number, at least 1"),
        ({"spread": 0}, r"SCAFFOLD: spread, a standard deviation"),
    ],
    ids=str,
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        SCAFFOLD(**options)
