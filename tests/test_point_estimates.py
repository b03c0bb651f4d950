"""FedAvg and FedProx against plain torch, closed forms and scikit-learn."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import binary_cross_entropy_with_logits

import pvi
from pvi.aggregators import LocationAverage
from pvi.factors import Factor
from pvi.families import DiagonalGaussian, Product
from pvi.posterior import Posterior
from pvi.solvers import PointSteps

NOISE = 0.5
FULL = {"batch_size": None, "learning_rate": 0.3}


def logistic(x, y=None):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def linear(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, NOISE), obs=y)


def start_guide(x, y=None):
    loc = pyro.param("loc", torch.tensor([0.4, -0.2, 0.1], dtype=torch.float64))
    scale = pyro.param("scale", torch.full((3,), 0.7, dtype=torch.float64), constraint=dist.constraints.positive)
    pyro.sample("weights", dist.Normal(loc, scale).to_event(1))


def clients(sizes=(30, 12, 40), binary=True):
    generator = torch.Generator().manual_seed(3)
    found = []
    for n, shift in zip(sizes, (-1.0, 0.0, 1.0), strict=False):
        x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
        x[:, :2] += shift
        eta = x @ torch.tensor([1.0, -0.7, 0.3], dtype=torch.float64)
        noise = torch.randn(n, generator=generator, dtype=torch.float64)
        found.append((x, ((eta + 2 * noise) > 0).double() if binary else eta + NOISE * noise))
    return found


def mean_of(result):
    return result.posterior.mean["weights"]


def descent(x, y, sent, steps, optimiser=torch.optim.SGD, lr=0.3, proximal=0.0):
    """A client's visit in stock torch, on all its rows."""
    theta = sent.clone().requires_grad_()
    stepper = optimiser([theta], lr=lr)
    for _ in range(steps):
        stepper.zero_grad()
        loss = binary_cross_entropy_with_logits(x @ theta, y) + proximal / 2 * (theta - sent).square().sum()
        loss.backward()
        stepper.step()
    return theta.detach()


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_one_client_is_plain_gradient_descent(optimiser):
    """Adam remembers nothing from visit to visit."""
    (x, y), *_ = clients()
    result = pvi.fit(logistic, [(x, y)], algorithm=pvi.FedAvg(7, optimiser=optimiser, **FULL), rounds=3)
    theta = torch.zeros(3, dtype=torch.float64)
    for _ in range(3):
        theta = descent(x, y, theta, 7, {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimiser])
    torch.testing.assert_close(mean_of(result), theta, rtol=0, atol=1e-8)


@pytest.mark.parametrize("proximal", [0.0, 0.8])
@pytest.mark.parametrize("weights", ["rows", "equal"])
def test_clients_are_weighted(weights, proximal):
    data = clients((30, 12))
    result = pvi.fit(logistic, data, algorithm=pvi.FedProx(proximal, 5, weights=weights, **FULL), rounds=4)
    parts = torch.tensor([30 / 42, 12 / 42] if weights == "rows" else [0.5, 0.5], dtype=torch.float64)
    theta = torch.zeros(3, dtype=torch.float64)
    for _ in range(4):
        theta = parts @ torch.stack([descent(x, y, theta, 5, proximal=proximal) for x, y in data])
    torch.testing.assert_close(mean_of(result), theta, rtol=0, atol=1e-8)


def test_a_subset_is_averaged_over_those_who_worked():
    data = clients()
    result = pvi.fit(logistic, data, algorithm=pvi.FedAvg(5, clients_per_round=2, subset_seed=1, **FULL), rounds=6)
    theta, drawn = torch.zeros(3, dtype=torch.float64), []
    for record in result.history:
        worked = [int(name.removeprefix("client ")) for name in record.clients]
        rows = torch.tensor([len(data[k][1]) for k in worked], dtype=torch.float64)
        theta = (rows / rows.sum()) @ torch.stack([descent(*data[k], theta, 5) for k in worked])
        drawn.append(tuple(worked))
    assert {len(worked) for worked in drawn} == {2}
    assert len(set(drawn)) > 1
    torch.testing.assert_close(mean_of(result), theta, rtol=0, atol=1e-8)
    assert result.settings["schedule"] == "random-subset"


def test_an_epoch_sees_every_row_once():
    """At a small rate the steps of a pass add up to -η/b times the sum of all rows' gradients at the start."""
    (x, y), *_ = clients((30,))
    rate = 1e-6
    algorithm = pvi.FedAvg(epochs=2, batch_size=5, learning_rate=rate)
    result = pvi.fit(logistic, [(x, y)], algorithm=algorithm, rounds=1)
    gradient = x.T @ (torch.sigmoid(torch.zeros(30, dtype=torch.float64)) - y)  # of -Σ log p at 0
    torch.testing.assert_close(mean_of(result), -2 * rate / 5 * gradient, rtol=1e-4, atol=0)
    assert next(iter(result.history[0].clients.values())).solver.steps == 12


def test_steps_of_a_visit():
    assert PointSteps(7).steps(30) == 7
    passes = PointSteps(None, epochs=3, batch_size=20)
    assert [passes.steps(rows) for rows in (5, 20, 39, 40)] == [3, 3, 3, 6]
    assert PointSteps(None, epochs=3, batch_size=None).steps(1000) == 3


def test_fedprox_without_the_term_is_fedavg():
    options = {"epochs": 2, "batch_size": 7, "learning_rate": 0.1}
    first = pvi.fit(logistic, clients(), algorithm=pvi.FedAvg(**options), rounds=3)
    second = pvi.fit(logistic, clients(), algorithm=pvi.FedProx(0.0, **options), rounds=3)
    assert torch.equal(first.posterior.natural, second.posterior.natural)
    third = pvi.fit(logistic, clients(), algorithm=pvi.FedProx(0.5, **options), rounds=3)
    assert not torch.equal(first.posterior.natural, third.posterior.natural)


def curvatures(data):
    """Of each client's mean negative log likelihood ½ θ'Hθ - g'θ: H and g."""
    scale = [len(y) * NOISE**2 for _, y in data]
    pairs = list(zip(data, scale, strict=True))
    return [x.T @ x / c for (x, _), c in pairs], [x.T @ y / c for (x, y), c in pairs]


@pytest.mark.parametrize("proximal", [1.0, 100.0])
def test_fedprox_solves_the_proximal_problem(proximal):
    """One round from 0 with enough steps: θ_m = (H_m + μ)^-1 g_m; the larger μ, the nearer to 0."""
    data = clients(binary=False)
    rate = 1 / (proximal + 25)
    algorithm = pvi.FedProx(proximal, 500, batch_size=None, learning_rate=rate, weights="equal")
    result = pvi.fit(linear, data, algorithm=algorithm, rounds=1)
    parts = zip(*curvatures(data), strict=True)
    solved = [torch.linalg.solve(h + proximal * torch.eye(3, dtype=h.dtype), g) for h, g in parts]
    torch.testing.assert_close(mean_of(result), torch.stack(solved).mean(0), rtol=0, atol=1e-8)
    if proximal == 100:
        assert mean_of(result).norm() < 0.1


def test_fedproxs_fixed_point_on_linear_regression():
    """θ = Σ w_m (H_m + μ)^-1 (g_m + μ θ), which is not the pooled optimum."""
    data, proximal = clients(binary=False), 2.0
    algorithm = pvi.FedProx(proximal, 80, batch_size=None, learning_rate=0.05)
    result = pvi.fit(linear, data, algorithm=algorithm, rounds=25)
    eye = torch.eye(3, dtype=torch.float64)
    rows = torch.tensor([float(len(y)) for _, y in data], dtype=torch.float64)
    weights, (h, g) = rows / rows.sum(), curvatures(data)
    inverse = [torch.linalg.inv(part + proximal * eye) for part in h]
    slope = sum(w * proximal * part for w, part in zip(weights, inverse, strict=True))
    constant = sum(w * part @ b for w, part, b in zip(weights, inverse, g, strict=True))
    torch.testing.assert_close(mean_of(result), torch.linalg.solve(eye - slope, constant), rtol=0, atol=1e-6)
    pooled = torch.linalg.solve(
        sum(w * part for w, part in zip(weights, h, strict=True)), sum(w * b for w, b in zip(weights, g, strict=True))
    )
    assert (mean_of(result) - pooled).norm() > 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"local_iterations": 6, "batch_size": None},
        {"local_iterations": 6, "batch_size": 7, "optimiser": "adam"},
        {"epochs": 2, "batch_size": 7},  # clients with different numbers of steps
        {"epochs": 2, "batch_size": 20, "proximal": 0.5},  # one client with fewer rows than a batch
    ],
    ids=str,
)
def test_executors_agree(options):
    build = pvi.FedProx if "proximal" in options else pvi.FedAvg
    runs = [
        pvi.fit(
            logistic, clients(), guide=start_guide, algorithm=build(learning_rate=0.2, **options), rounds=3,
            executor=executor, seed=5,
        )
        for executor in ("loop", "vectorised")
    ]  # fmt: skip
    assert [{info.executor for info in run.history[-1].clients.values()} for run in runs] == [{"loop"}, {"vectorised"}]
    torch.testing.assert_close(mean_of(runs[0]), mean_of(runs[1]), rtol=1e-10, atol=1e-10)
    for first, second in zip(runs[0].history[-1].clients.values(), runs[1].history[-1].clients.values(), strict=True):
        assert first.solver.steps == second.solver.steps
        assert first.solver.free_energy == pytest.approx(second.solver.free_energy, rel=1e-10)


def test_one_full_step_a_round_finds_the_maximum_likelihood():
    data = clients()
    algorithm = pvi.FedAvg(1, batch_size=None, learning_rate=3.0)
    result = pvi.fit(logistic, data, algorithm=algorithm, rounds=60)
    x, y = (torch.cat([client[part] for client in data]).numpy() for part in (0, 1))
    best = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(mean_of(result).numpy(), best.coef_[0], atol=1e-5)
    probability = best.predict_proba(x)
    assert result.elbo == pytest.approx(np.log(np.where(y == 1, probability[:, 1], probability[:, 0])).sum(), abs=1e-5)
    assert {record.drift for record in result.history} == {0.0}
    assert {record.kl for record in result.history} == {0.0}


def heavy(x, y):
    weights = pyro.sample("weights", dist.Laplace(x.new_zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def test_the_prior_is_no_part_of_the_reported_value():
    data = clients()
    result = pvi.fit(heavy, data, guide="mean-field", algorithm=pvi.FedAvg(5, **FULL), rounds=3)
    losses = [binary_cross_entropy_with_logits(x @ mean_of(result), y, reduction="sum") for x, y in data]
    assert result.elbo == pytest.approx(-sum(losses).item(), abs=1e-5)


def test_start_and_spread():
    """The guide's means, else the prior's; the placeholder of a standard deviation stays what it was."""
    still = pvi.FedAvg(1, learning_rate=0.0, spread=1e-3)
    result = pvi.fit(logistic, clients(), guide=start_guide, algorithm=still, rounds=2)
    torch.testing.assert_close(mean_of(result), torch.tensor([0.4, -0.2, 0.1], dtype=torch.float64))
    assert (mean_of(pvi.fit(logistic, clients(), algorithm=still, rounds=1)) == 0).all()
    moved = pvi.fit(logistic, clients(), algorithm=pvi.FedAvg(3, learning_rate=0.1), rounds=20)
    np.testing.assert_allclose(moved.posterior.sd["weights"], 1e-4, rtol=1e-14)


def test_single_precision():
    runs = [
        pvi.fit(logistic, clients(), algorithm=pvi.FedAvg(5, **FULL), rounds=20, dtype=dtype)
        for dtype in (torch.float32, torch.float64)
    ]
    torch.testing.assert_close(mean_of(runs[0]).double(), mean_of(runs[1]), rtol=1e-5, atol=1e-5)


def test_averages_of_locations():
    family = Product(("a",), (DiagonalGaussian(1),))

    def at(loc, sd=0.1):
        return family.members[0].natural_from_standard(loc=torch.tensor([loc]), scale=torch.tensor([sd]))

    sent = Posterior(family, at(1.0), None)
    deltas = [Factor(family, at(loc) - sent.natural, torch.zeros(())) for loc in (2.0, 5.0)]
    for average, mean in (
        (LocationAverage(), (0.1 * 2 + 0.3 * 5) / 0.4),  # a third client with 0.6 of the rows did not answer
        (LocationAverage("equal"), 3.5),
        (LocationAverage("equal", smoothing=0.5), 2.25),
    ):
        found, fraction = average(sent, deltas, [0.1, 0.3])
        torch.testing.assert_close(found.natural, at(mean))
        assert fraction == 1
    assert LocationAverage()(sent, [], []) == (sent, 1.0)


def test_options_out_of_range():
    for build, options, message in (
        (pvi.FedAvg, {"local_iterations": 0}, r"FedAvg: local_iterations must be a whole number, at least 1, got 0"),
        (pvi.FedAvg, {"local_iterations": 5, "epochs": 1}, r"FedAvg: give local_iterations or epochs, one of them"),
        (pvi.FedAvg, {"epochs": 1.5}, r"FedAvg: epochs must be a whole number"),
        (pvi.FedAvg, {"batch_size": 0}, r"FedAvg: batch_size must be a whole number"),
        (pvi.FedAvg, {"learning_rate": -1.0}, r"learning rate is a number from 0, got -1.0"),
        (pvi.FedAvg, {"optimiser": "lbfgs"}, r"unknown optimiser 'lbfgs'; there are adam, sgd"),
        (pvi.FedAvg, {"weights": "labels"}, r"weights is 'rows' or 'equal', got 'labels'"),
        (pvi.FedAvg, {"clients_per_round": 0}, r"FedAvg: clients_per_round is a whole number, at least 1"),
        (pvi.FedAvg, {"spread": 0.0}, r"FedAvg: spread, a standard deviation, lies between 1e-08 and 1"),
        (pvi.FedProx, {"proximal": -0.1}, r"FedProx: proximal \(μ\) is a finite number from 0, got -0.1"),
        (pvi.FedProx, {"proximal": float("inf")}, r"FedProx: proximal"),
        (LocationAverage, {"smoothing": 0.0}, r"smoothing must lie in \(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            build(**options)
    with pytest.raises(ValueError, match=r"a random subset of 4 clients: there are only 3"):
        pvi.fit(logistic, clients(), algorithm=pvi.FedAvg(clients_per_round=4))


def by_client(x, y):
    bias = pyro.sample("bias", dist.Normal(x.new_zeros(()), 1.0), infer={"pvi": "private"})
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


def subsampling(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(y), subsample_size=5) as rows:
        pyro.sample("y", dist.Bernoulli(logits=x[rows] @ weights), obs=y[rows])


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (logistic, {"solver": "newton"}, r"'fedavg' is defined by its local solver \(point-steps\), got 'newton'"),
        (logistic, {"damping": 0.5}, r"'fedavg' is defined by its damping \(1.0\), got 0.5"),
        (logistic, {"schedule": "sequential"}, r"'fedavg' is defined by its schedule \(synchronous\)"),
        (logistic, {"acceleration": "anderson"}, r"mixes clients' factors, which algorithm 'fedavg' does not have"),
        (logistic, {"guide": "full"}, r"client 'client 0': FedAvg is defined for a mean-field Gaussian"),
        (
            by_client,
            {},
            r"client 'client 0': FedAvg makes point estimates of every latent, .* has private ones, \['bias'\]",
        ),
        (subsampling, {"algorithm": pvi.FedProx(epochs=1)}, r"FedProx counts epochs .* subsamples 5 of 30 rows itself"),
    ],
)
def test_what_it_cannot_be_combined_with(model, options, message):
    with pytest.raises(ValueError, match=message):
        pvi.fit(model, clients(), **{"algorithm": "fedavg"} | options)


def test_the_models_own_subsampling():
    result = pvi.fit(subsampling, clients(), algorithm=pvi.FedAvg(10, learning_rate=0.1), rounds=2)
    assert result.posterior.mean["weights"].abs().max() > 0.05


def test_a_result_comes_back(tmp_path):
    (x, _), *_ = data = clients()
    result = pvi.fit(logistic, data, algorithm="fedprox", rounds=2)
    result.save(tmp_path / "run")
    loaded = pvi.load(tmp_path / "run", model=logistic)
    assert torch.equal(loaded.posterior.natural, result.posterior.natural)
    assert loaded.settings == result.settings
    assert loaded.settings["algorithm"] == "fedprox"
    probability = loaded.predict(x, num_samples=20, seed=0)["y"].double().mean(0)
    assert probability.shape == (len(x),)
