"""Ditto, pFedMe and Per-FedAvg: estimates of each client's own, against plain loops and closed forms."""

import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, NOISE, START, clients, personal_of, quadratic, shares, theta_of

import pvi
from pvi.algorithms.ditto import Ditto
from pvi.algorithms.per_fedavg import PerFedAvg
from pvi.algorithms.pfedme import PFedMe

EYE = torch.eye(3, dtype=DOUBLE)
FULL = {"batch_size": None}
EXECUTORS = ("loop", "vectorised")


def fit(algorithm, rounds, **options):
    return pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=rounds, **options)


def close(first, second, tolerance=1e-10):
    torch.testing.assert_close(first, second, rtol=0, atol=tolerance)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_dittos_published_steps(executor):
    data, eta, own_eta, lam = clients(), 0.02, 0.03, 0.7
    result = fit(Ditto(lam, 4, learning_rate=eta, personal_learning_rate=own_eta, **FULL), 5, executor=executor)
    theta, own = START, [START for _ in data]
    for _ in range(5):
        ends = []
        for i, client in enumerate(data):
            h, g = quadratic(*client)
            x = theta
            for _ in range(4):
                x = x - eta * (h @ x - g)
                own[i] = own[i] - own_eta * (h @ own[i] - g + lam * (own[i] - theta))
            ends.append(x)
        theta = shares(data) @ torch.stack(ends)
    close(theta_of(result.posterior), theta)
    close(personal_of(result), torch.stack(own))


@pytest.mark.parametrize("options", [{"epochs": 2, "batch_size": 7}, {"batch_size": 5, "optimiser": "adam"}], ids=str)
def test_dittos_global_estimate_is_fedavgs(options):
    runs = [fit(row(learning_rate=0.02, **options), 3) for row in (Ditto, pvi.FedAvg)]
    assert torch.equal(*[run.posterior.natural for run in runs])


def test_dittos_lambda():
    """0: every client's own optimum; large: the server's estimate."""
    alone = fit(Ditto(0.0, 60, learning_rate=0.03, **FULL), 20, executor="vectorised")
    close(personal_of(alone), torch.stack([torch.linalg.solve(*quadratic(*client)) for client in clients()]), 1e-6)
    before = fit(Ditto(1e6, 20, learning_rate=0.02, personal_learning_rate=1e-6, **FULL), 4)
    after = fit(Ditto(1e6, 20, learning_rate=0.02, personal_learning_rate=1e-6, **FULL), 5)
    close(personal_of(after), theta_of(before.posterior).expand(3, 3), 1e-4)  # as sent in the last round


def test_dittos_personal_optimum():
    """At the last θ_S sent, (H_i + λ)^-1 (g_i + λ θ_S), which a long visit comes to."""
    lam = 2.0
    before = theta_of(fit(Ditto(lam, 300, learning_rate=0.04, **FULL), 1).posterior)
    result = fit(Ditto(lam, 300, learning_rate=0.04, **FULL), 2)
    curves = [quadratic(*client) for client in clients()]
    close(personal_of(result), torch.stack([torch.linalg.solve(h + lam * EYE, g + lam * before) for h, g in curves]))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_pfedmes_published_steps(executor):
    data, eta, own_eta, lam, beta = clients(), 0.1, 0.02, 3.0, 0.6
    algorithm = PFedMe(lam, 4, 3, None, learning_rate=eta, personal_learning_rate=own_eta, smoothing=beta)
    result = fit(algorithm, 5, executor=executor)
    w, thetas = START, []
    for _ in range(5):
        ends, thetas = [], []
        for h, g in (quadratic(*client) for client in data):
            mine = theta = w
            for _ in range(4):
                for _ in range(3):
                    theta = theta - own_eta * (h @ theta - g + lam * (theta - mine))
                mine = mine - eta * lam * (mine - theta)
            ends.append(mine)
            thetas.append(theta)
        w = (1 - beta) * w + beta * torch.stack(ends).mean(0)
    close(theta_of(result.posterior), w)
    close(personal_of(result), torch.stack(thetas))


def test_pfedmes_fixed_point():
    """R = 1: Σ_i λ (w - θ_i(w)) = 0, θ_i(w) = (H_i + λ)^-1 (g_i + λ w), is the minimum of the envelopes' mean."""
    lam = 20.0
    algorithm = PFedMe(lam, 1, 16, None, learning_rate=0.15, personal_learning_rate=0.0274)
    result = fit(algorithm, 26, executor="vectorised")
    curves = [quadratic(*client) for client in clients()]
    inverse = [torch.linalg.inv(h + lam * EYE) for h, _ in curves]
    slope = sum(EYE - lam * part for part in inverse)
    w = torch.linalg.solve(slope, sum(part @ g for part, (_, g) in zip(inverse, curves, strict=True)))
    close(theta_of(result.posterior), w, 1e-6)
    expected = [part @ (g + lam * w) for part, (_, g) in zip(inverse, curves, strict=True)]
    close(personal_of(result), torch.stack(expected), 1e-6)
    # The envelope's gradient is λ (w - θ_i): the same from the envelope itself, ½ θ'Hθ - g'θ + λ/2 ||θ - w||² at θ_i.
    at = w.clone().requires_grad_()
    values = [torch.linalg.solve(h + lam * EYE, g + lam * at) for h, g in curves]
    envelopes = [
        x @ h @ x / 2 - g @ x + lam / 2 * (x - at).square().sum() for x, (h, g) in zip(values, curves, strict=True)
    ]
    (gradient,) = torch.autograd.grad(torch.stack(envelopes).mean(), at)
    close(gradient, torch.zeros(3, dtype=DOUBLE), 1e-10)


def test_pfedmes_subset_keeps_everybodys_estimate():
    """All work: whoever is not averaged has moved too."""
    result = fit(PFedMe(local_iterations=2, subset=1, subset_seed=1), 1)
    assert result.settings["schedule"] == "subset-after-training"
    assert (personal_of(result).abs().amax(1) > 0).all()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_per_fedavgs_published_steps(executor):
    data, alpha, beta = clients(), 0.03, 0.02
    algorithm = PerFedAvg(4, inner_learning_rate=alpha, learning_rate=beta, **FULL)
    result = fit(algorithm, 5, executor=executor)
    w = sent = START
    for _ in range(5):
        ends, sent = [], w
        for h, g in (quadratic(*client) for client in data):
            x = sent
            for _ in range(4):
                adapted = x - alpha * (h @ x - g)
                x = x - beta * (h @ adapted - g)
            ends.append(x)
        w = torch.stack(ends).mean(0)
    close(theta_of(result.posterior), w)
    close(personal_of(result), torch.stack([sent - alpha * (h @ sent - g) for h, g in (quadratic(*c) for c in data)]))


def test_per_fedavgs_fixed_point():
    """τ = 1: Σ_i ∇f_i(w - α ∇f_i(w)) = Σ_i ((I - α H_i) H_i w - (I - α H_i) g_i) = 0, first order only."""
    alpha = 0.02
    result = fit(PerFedAvg(1, inner_learning_rate=alpha, learning_rate=0.1, **FULL), 60, executor="vectorised")
    parts = [(EYE - alpha * h, h, g) for h, g in (quadratic(*client) for client in clients())]
    w = torch.linalg.solve(sum(a @ h for a, h, _ in parts), sum(a @ g for a, _, g in parts))
    close(theta_of(result.posterior), w, 1e-6)


def test_per_fedavg_without_its_step_is_fedavg():
    meta = PerFedAvg(5, inner_learning_rate=0.0, learning_rate=0.02, weights="rows", **FULL)
    result, averaged = fit(meta, 3), fit(pvi.FedAvg(5, learning_rate=0.02, **FULL), 3)
    close(theta_of(result.posterior), theta_of(averaged.posterior))


ROWS = {
    "ditto": Ditto(0.5, epochs=2, batch_size=7, learning_rate=0.02),
    "ditto adam": Ditto(0.5, 6, batch_size=7, optimiser="adam"),
    "pfedme": PFedMe(2.0, 5, 3, batch_size=7),
    "per-fedavg": PerFedAvg(5, batch_size=7),
}


@pytest.mark.parametrize("name", ROWS)
def test_executors_agree(name):
    runs = [fit(ROWS[name], 3, executor=executor, seed=5) for executor in EXECUTORS]
    assert [{info.executor for info in run.history[-1].clients.values()} for run in runs] == [{"loop"}, {"vectorised"}]
    close(*[theta_of(run.posterior) for run in runs])
    close(*[personal_of(run) for run in runs])
    assert runs[0].elbo == pytest.approx(runs[1].elbo, rel=1e-10)


@pytest.mark.parametrize("name", ROWS)
def test_what_a_run_says(name, tmp_path):
    """The reported value is the log likelihood of each client's rows at its own estimate, up to the spread."""
    result = fit(ROWS[name], 2)
    assert result.settings["objective"] == "Σ_m E_q_m[log p(y_m | θ)]"
    value = 0.0
    for theta, (x, y) in zip(personal_of(result), clients(), strict=True):
        value += torch.distributions.Normal(x @ theta[:2] + theta[2], NOISE).log_prob(y).sum().item()
    assert result.elbo == pytest.approx(value, abs=1e-4)
    for own in result.personal.values():
        assert own.sd["weights"].sub(1e-4).abs().max() < 1e-12
    result.save(tmp_path / "run")
    loaded = pvi.load(tmp_path / "run", model=MODEL)
    assert torch.equal(personal_of(loaded), personal_of(result))


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (Ditto, {"proximal": -1.0}, r"Ditto: proximal is a finite number from 0, got -1.0"),
        (Ditto, {"local_iterations": 5, "epochs": 1}, r"Ditto: give local_iterations or epochs, one of them"),
        (Ditto, {"personal_learning_rate": -1.0}, r"Ditto: personal_learning_rate is a finite number from 0"),
        (Ditto, {"optimiser": "lbfgs"}, r"unknown optimiser 'lbfgs'"),
        (Ditto, {"spread": 0}, r"Ditto: spread, a standard deviation"),
        (PFedMe, {"proximal": float("nan")}, r"pFedMe: proximal is a finite number from 0, got nan"),
        (PFedMe, {"local_iterations": None}, r"pFedMe: local_iterations must be a whole number, at least 1, got None"),
        (PFedMe, {"inner_iterations": 0}, r"pFedMe: inner_iterations must be a whole number"),
        (PFedMe, {"batch_size": 0}, r"pFedMe: batch_size must be a whole number"),
        (PFedMe, {"smoothing": 2.0}, r"pFedMe: smoothing lies in \(0, 1\], got 2.0"),
        (PFedMe, {"subset": 0}, r"pFedMe: subset must be a whole number"),
        (PerFedAvg, {"local_iterations": 0}, r"Per-FedAvg: local_iterations must be a whole number"),
        (PerFedAvg, {"batch_size": True}, r"Per-FedAvg: batch_size must be a whole number"),
        (PerFedAvg, {"inner_learning_rate": -0.1}, r"Per-FedAvg: inner_learning_rate is a finite number from 0"),
        (PerFedAvg, {"learning_rate": "fast"}, r"Per-FedAvg: learning_rate is a finite number from 0"),
        (PerFedAvg, {"clients_per_round": 0}, r"Per-FedAvg: clients_per_round is a whole number, at least 1"),
    ],
)
def test_options_out_of_range(row, options, message):
    with pytest.raises(ValueError, match=message):
        row(**options)
