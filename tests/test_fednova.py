"""FedNova against plain loops, on clients whose mini-batches all have the same gradient."""

import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, START, clients, quadratic, shares, theta_of

import pvi
from pvi.algorithms.fednova import FedNova

SIZES = (8, 12, 40, 16)


def copies():
    """Each client has one row many times: 2, 3, 10 and 4 mini-batches of 4 rows an epoch, all alike."""
    generator = torch.Generator().manual_seed(2)
    rows = [(torch.randn(1, 2, generator=generator, dtype=DOUBLE), k - 1.5) for k in range(len(SIZES))]
    return [(x.expand(n, 2).clone(), torch.full((n,), y, dtype=DOUBLE)) for n, (x, y) in zip(SIZES, rows, strict=True)]


def by_hand(data, rounds, eta, worked=None):
    theta, heard = START, set()
    rows = torch.tensor(SIZES, dtype=DOUBLE)
    for r in range(rounds):
        asked = list(range(len(data))) if worked is None else worked[r]
        known = sorted(heard)
        mean = (rows[known] @ (rows[known] / 4) / rows[known].sum()).item() if known else None
        changes = []
        for i in asked:
            h, g = quadratic(*data[i])
            x, made = theta, SIZES[i] // 4
            for _ in range(made):
                x = x - eta * (h @ x - g)
            changes.append((x - theta) * (1 if mean is None else mean / made))
        theta = theta + rows[asked] / rows[asked].sum() @ torch.stack(changes)
        heard.update(asked)
    return theta


@pytest.mark.parametrize("executor", ["loop", "vectorised"])
def test_the_published_steps(executor):
    algorithm = FedNova(batch_size=4, learning_rate=0.02)
    result = pvi.fit(MODEL, copies(), algorithm=algorithm, rounds=4, executor=executor)
    torch.testing.assert_close(theta_of(result.posterior), by_hand(copies(), 4, 0.02), rtol=0, atol=1e-10)


def test_a_subset():
    algorithm = FedNova(batch_size=4, learning_rate=0.02, clients_per_round=2, subset_seed=1)
    result = pvi.fit(MODEL, copies(), algorithm=algorithm, rounds=6)
    worked = [[int(name.removeprefix("client ")) for name in record.clients] for record in result.history]
    assert len({tuple(pair) for pair in worked}) > 2
    torch.testing.assert_close(theta_of(result.posterior), by_hand(copies(), 6, 0.02, worked), rtol=0, atol=1e-10)


def test_it_comes_nearer_to_the_optimum_than_fedavg():
    """FedAvg's fixed point, up to the rate, is that of p_i τ_i in the place of p_i."""
    data = copies()
    h, g = (torch.stack(parts) for parts in zip(*[quadratic(*client) for client in data], strict=True))
    best = torch.linalg.solve(torch.einsum("i,ijk->jk", shares(data), h), shares(data) @ g)
    options = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01}
    found, other = (
        theta_of(pvi.fit(MODEL, data, algorithm=row(**options), rounds=50, executor="vectorised").posterior)
        for row in (FedNova, pvi.FedAvg)
    )
    assert (found - best).norm() < 0.3 * (other - best).norm()


def test_equal_numbers_of_steps_are_fedavg():
    options = {"epochs": 3, "batch_size": None, "learning_rate": 0.02}
    runs = [pvi.fit(MODEL, clients(), algorithm=row(**options), rounds=3) for row in (FedNova, pvi.FedAvg)]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=0, atol=1e-10)


def test_executors_agree():
    algorithm = FedNova(2, 7, learning_rate=0.02)
    runs = [
        pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=3, executor=executor, seed=5)
        for executor in ("loop", "vectorised")
    ]
    assert [{info.executor for info in run.history[-1].clients.values()} for run in runs] == [{"loop"}, {"vectorised"}]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": None}, r"FedNova: epochs must be a whole number, at least 1, got None"),
        ({"batch_size": 0}, r"FedNova: batch_size must be a whole number"),
        ({"learning_rate": -1.0}, r"FedNova: learning_rate is a finite number from 0"),
        ({"clients_per_round": 0}, r"FedNova: clients_per_round is a whole number, at least 1"),
        ({"spread": 0}, r"FedNova: spread, a standard deviation"),
    ],
    ids=str,
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        FedNova(**options)
