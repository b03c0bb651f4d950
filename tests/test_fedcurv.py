"""FedCurv against a plain torch loop of the published algorithm, whose clients know each other's parts."""

import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, clients, personal_of, shares, theta_of

import pvi
from pvi.families.precision import precision
from pvi.rounds import plain_round
from pvi.solvers.draws import minibatches, row_generator
from pvi.start import start

NOISE = 0.5
OPTIONS = {"epochs": 2, "batch_size": 7, "learning_rate": 3e-4}
"""Squared gradients of rows are large where the fit is bad, and a step towards the others goes by them."""
MANY = (30, 12, 40, 5)


def begin(data, algorithm):
    return start(MODEL, data, None, algorithm, None, None, 1, None, "loop", 0, "cpu", None)


def seeds_of(data):
    return [client.seed for client in begin(data, "pvi")[1].clients.values()]


def precision_of(posterior):
    return precision(posterior.family, posterior.natural)


def row_slopes(x, y, theta):
    """∇ log p(y_j | θ) of every row, ``[n, d]``."""
    a = torch.cat([x, x.new_ones(len(x), 1)], 1)
    return ((y - a @ theta) / NOISE**2)[:, None] * a


class Plain:
    """Every client holds everybody else's last F_m and θ_m, as in the paper."""

    def __init__(self, data, penalty=1.0, equal=False):
        self.data, self.penalty, self.equal = data, penalty, equal
        self.seeds, self.visits = seeds_of(data), [0] * len(data)
        self.theta, self.known = torch.zeros(3, dtype=DOUBLE), {}
        self.rows = sum(len(y) for _, y in data)

    def visit(self, k, sent, known, *, epochs, batch_size, learning_rate):
        (x, y), theta = self.data[k], sent
        size = min(batch_size, len(y))
        draws = minibatches(len(y), batch_size, row_generator(self.seeds[k] + self.visits[k], x.device))
        for _, chosen in zip(range(epochs * (len(y) // size)), draws, strict=False):
            part, target = (x, y) if chosen is None else (x[chosen], y[chosen])
            gradient = -row_slopes(part, target, theta).mean(0)
            for m, (fisher, end) in known.items():
                if m != k:
                    gradient = gradient + self.penalty / self.rows * fisher * (theta - end)
            theta = theta - learning_rate * gradient
        self.visits[k] += 1
        return row_slopes(x, y, theta).square().sum(0), theta

    def round(self, **options):
        worked = options.pop("worked", range(len(self.data)))
        ends = {k: self.visit(k, self.theta, self.known, **options) for k in worked}
        self.known = self.known | ends
        weight = torch.tensor([1.0 if self.equal else float(len(self.data[k][1])) for k in ends], dtype=DOUBLE)
        self.theta = weight / weight.sum() @ torch.stack([theta for _, theta in ends.values()])
        return self.theta

    @property
    def precision(self):
        return 1 + sum(fisher for fisher, _ in self.known.values())


@pytest.mark.parametrize("penalty", [1.0, 0.2])
@pytest.mark.parametrize("weights", ["rows", "equal"])
def test_the_published_algorithm(weights, penalty):
    """Means round after round, and the precision Λ_p + Σ F_m; in the first round nothing is known of others."""
    data = clients(MANY)
    plain = Plain(data, penalty, weights == "equal")
    algorithm = pvi.FedCurv(penalty, weights=weights, keep_local=True, **OPTIONS)
    averaged = next(pvi.fit_rounds(MODEL, data, algorithm=pvi.FedAvg(weights=weights, **OPTIONS), rounds=1))
    for index, result in enumerate(pvi.fit_rounds(MODEL, data, algorithm=algorithm, rounds=4)):
        mean = plain.round(**OPTIONS)
        torch.testing.assert_close(theta_of(result.posterior), mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(precision_of(result.posterior), plain.precision, rtol=1e-10, atol=1e-10)
        ends = torch.stack([theta for _, theta in plain.known.values()])
        torch.testing.assert_close(personal_of(result), ends, rtol=1e-10, atol=1e-10)
        if not index:
            torch.testing.assert_close(theta_of(averaged.posterior), mean, rtol=1e-12, atol=1e-12)
    assert (theta_of(result.posterior) - theta_of(averaged.posterior)).norm() > 1e-3


def test_random_subsets():
    """Who does not work in a round keeps its old part in everybody's penalty; who never did has none."""
    data = clients(MANY)
    plain = Plain(data)
    algorithm = pvi.FedCurv(clients_per_round=2, subset_seed=3, **OPTIONS)
    drawn = set()
    for result in pvi.fit_rounds(MODEL, data, algorithm=algorithm, rounds=6):
        worked = [int(name.removeprefix("client ")) for name in result.history[-1].clients]
        drawn.add(tuple(worked))
        mean = plain.round(worked=worked, **OPTIONS)
        torch.testing.assert_close(theta_of(result.posterior), mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(precision_of(result.posterior), plain.precision, rtol=1e-10, atol=1e-10)
    assert len(drawn) > 2


def test_what_the_server_holds_beside_q():
    """Σ F_m and Σ F_m θ_m, of which each client takes its own away; they tell nobody whose is whose."""
    data = clients(MANY)
    plan, state = begin(data, pvi.FedCurv(**OPTIONS))
    plain = Plain(data)
    assert state.server.beside is None
    for _ in range(3):
        state = plain_round(plan, state)
        plain.round(**OPTIONS)
        expected = sum(torch.stack([fisher, fisher * theta]) for fisher, theta in plain.known.values())
        torch.testing.assert_close(state.server.beside, expected, rtol=1e-10, atol=1e-10)
        for client, (fisher, theta) in zip(state.clients.values(), plain.known.values(), strict=True):
            (own,) = client.personal.memory
            torch.testing.assert_close(own, torch.stack([fisher, fisher * theta]), rtol=1e-10, atol=1e-10)


def test_without_the_penalty_it_is_fedavg():
    runs = [
        pvi.fit_rounds(MODEL, clients(), algorithm=algorithm, rounds=3)
        for algorithm in (pvi.FedCurv(0.0, **OPTIONS), pvi.FedAvg(**OPTIONS))
    ]
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(theta_of(one.posterior), theta_of(other.posterior), rtol=1e-12, atol=1e-12)


def test_one_client_alone_has_no_others():
    data = clients((30,))
    runs = [pvi.fit(MODEL, data, algorithm=build(**OPTIONS), rounds=5) for build in (pvi.FedCurv, pvi.FedAvg)]
    torch.testing.assert_close(theta_of(runs[0].posterior), theta_of(runs[1].posterior), rtol=1e-9, atol=1e-9)


def test_the_penalty_holds_clients_near_the_others():
    data = clients()
    spread = []
    for penalty in (0.0, 1.0):
        algorithm = pvi.FedCurv(penalty, local_iterations=100, batch_size=None, keep_local=True, learning_rate=3e-4)
        result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=2)
        spread.append((personal_of(result) - shares(data) @ personal_of(result)).norm())
    assert spread[1] < 0.9 * spread[0]


def test_curvature_that_vanishes_in_single_precision():
    """Rows that fit perfectly in the end: their squared gradients fall from 1e13 to 0, and leave no rounding behind."""
    data = [(x, x @ torch.tensor([1000.0, -2000.0], dtype=DOUBLE)) for x, _ in clients((10, 20))]
    algorithm = pvi.FedCurv(0.0, local_iterations=1, batch_size=None, learning_rate=0.1)
    result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=60, dtype=torch.float32)
    torch.testing.assert_close(precision_of(result.posterior), torch.ones(3), rtol=1e-3, atol=0)


def test_a_result_comes_back(tmp_path):
    x, y = clients()[0]
    algorithm = pvi.FedCurv(keep_local=True, **OPTIONS)
    result = pvi.fit("linear_regression", clients(), algorithm=algorithm, rounds=2)
    result.save(tmp_path / "run")
    loaded = pvi.load(tmp_path / "run")
    assert torch.equal(loaded.posterior.natural, result.posterior.natural)
    assert loaded.settings["algorithm"] == "fedcurv"
    assert loaded.settings["options"]["penalty"] == 1.0
    assert loaded.settings["aggregator"] == {
        "name": "LocationAverage", "weights": "rows", "smoothing": 1.0, "precision": "summed",
    }  # fmt: skip
    assert loaded.of_client("client 2").log_predictive_density(x, y)["y"].shape == (30,)
