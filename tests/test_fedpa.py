"""FedPA against the dense formula, plain loops and FedAvg."""

import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, START, clients, quadratic, shares, theta_of

import pvi
from pvi.algorithms.fedpa import FedPA
from pvi.solvers.posterior_averaging import posterior_delta


def dense(sent, samples, rho):
    """The d x d formula, and the covariance from torch."""
    count, size = samples.shape
    part = 1 / (1 + (count - 1) * rho)
    covariance = torch.cov(samples.T) if count > 1 else torch.zeros(size, size, dtype=DOUBLE)
    sigma = part * torch.eye(size, dtype=DOUBLE) + (1 - part) * covariance
    return torch.linalg.inv(sigma) @ (sent - samples.mean(0))


@pytest.mark.parametrize("rho", [0.0, 0.1, 3.0])
@pytest.mark.parametrize(("count", "size"), [(1, 4), (2, 7), (5, 3), (9, 20)])
def test_delta_is_the_dense_formulas(count, size, rho):
    generator = torch.Generator().manual_seed(count)
    sent = torch.randn(size, generator=generator, dtype=DOUBLE)
    samples = 2 + torch.randn(count, size, generator=generator, dtype=DOUBLE)
    torch.testing.assert_close(posterior_delta(sent, samples, rho), dense(sent, samples, rho), rtol=1e-10, atol=1e-10)


def test_delta_needs_no_matrix_of_the_latents():
    samples = torch.randn(3, 10**6, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)  # d x d: 8 TB
    assert posterior_delta(samples[0], samples, 0.1).isfinite().all()


def by_hand(data, rounds, count, length, burn_in, rho, eta, burn_in_rounds=0, rate=1.0):
    theta = START
    for r in range(rounds):
        ends = []
        for h, g in (quadratic(*client) for client in data):
            x, path = theta, []
            for _ in range(burn_in + count * length):
                x = x - eta * (h @ x - g)
                path.append(x)
            samples = torch.stack([part.mean(0) for part in torch.stack(path[burn_in:]).split(length)])
            ends.append(x if r < burn_in_rounds else theta - dense(theta, samples, rho))
        theta = theta + rate * (shares(data) @ torch.stack(ends) - theta)
    return theta


@pytest.mark.parametrize("executor", ["loop", "vectorised"])
@pytest.mark.parametrize("visit", [(3, 2, 4), (4, 1, 0), (1, 3, 2)], ids=str)
def test_the_published_steps(visit, executor):
    count, length, burn_in = visit
    algorithm = FedPA(count, length, burn_in, 0.3, None, learning_rate=0.02, server_learning_rate=0.7)
    result = pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=4, executor=executor)
    expected = by_hand(clients(), 4, count, length, burn_in, 0.3, 0.02, rate=0.7)
    torch.testing.assert_close(theta_of(result.posterior), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("executor", ["loop", "vectorised"])
def test_rounds_of_burn_in_are_fedavgs(executor):
    algorithm = FedPA(2, 2, 1, 0.3, None, learning_rate=0.02, burn_in_rounds=2)
    runs = [pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=r, executor=executor) for r in (2, 4)]
    averaged = pvi.fit(MODEL, clients(), algorithm=pvi.FedAvg(5, batch_size=None, learning_rate=0.02), rounds=2)
    torch.testing.assert_close(theta_of(runs[0].posterior), theta_of(averaged.posterior), rtol=0, atol=1e-10)
    expected = by_hand(clients(), 4, 2, 2, 1, 0.3, 0.02, burn_in_rounds=2)
    torch.testing.assert_close(theta_of(runs[1].posterior), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [
        (FedPA(1, 1, 6, batch_size=7, learning_rate=0.02), pvi.FedAvg(7, batch_size=7, learning_rate=0.02)),
        (FedPA(4, 2, 3, 0.0, 7, learning_rate=0.02), FedPA(1, 8, 3, batch_size=7, learning_rate=0.02)),
    ],
    ids=["one sample of one step", "no covariance"],
)
def test_limits(algorithm, other):
    """ρ_1 = 1, and ρ = 0, leave the mean of the iterates after the burn-in: of one iterate, FedAvg's last."""
    runs = [pvi.fit(MODEL, clients(), algorithm=row, rounds=3) for row in (algorithm, other)]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=0, atol=1e-10)


def test_executors_agree():
    algorithm = FedPA(3, 2, 3, batch_size=7, learning_rate=0.02)
    runs = [
        pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=3, executor=executor, seed=5)
        for executor in ("loop", "vectorised")
    ]
    assert [{info.executor for info in run.history[-1].clients.values()} for run in runs] == [{"loop"}, {"vectorised"}]
    torch.testing.assert_close(*[theta_of(run.posterior) for run in runs], rtol=1e-10, atol=1e-10)
    assert {info.solver.steps for info in runs[0].history[-1].clients.values()} == {9}


def test_samples_that_diverge_are_rejected():
    """Steps that overflow: the update is not used, and the history says so."""
    result = pvi.fit(MODEL, clients((30,)), algorithm=FedPA(5, 60, batch_size=None, learning_rate=1e3), rounds=1)
    assert "not finite" in result.history[0].rejected["client 0"]
    assert (theta_of(result.posterior) == START).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, r"FedPA: num_samples must be a whole number, at least 1, got 0"),
        ({"num_samples": None}, r"FedPA: num_samples must be a whole number, at least 1, got None"),
        ({"steps_per_sample": 1.5}, r"FedPA: steps_per_sample must be a whole number"),
        ({"burn_in": -1}, r"FedPA: burn_in must be a whole number from 0, got -1"),
        ({"burn_in_rounds": None}, r"FedPA: burn_in_rounds must be a whole number from 0, got None"),
        ({"shrinkage": -0.1}, r"FedPA: shrinkage is a finite number from 0, got -0.1"),
        ({"learning_rate": float("inf")}, r"FedPA: learning_rate is a finite number from 0, got inf"),
        ({"batch_size": 0}, r"FedPA: batch_size must be a whole number"),
        ({"server_learning_rate": 0}, r"FedPA: server_learning_rate lies in \(0, 1\], got 0"),
        ({"spread": 0}, r"FedPA: spread, a standard deviation"),
    ],
    ids=str,
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        FedPA(**options)
