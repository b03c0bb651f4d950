"""What must hold of FOLA whatever the data: sums over rounds, special cases, the prior's pull, executors, results."""

from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, clients, personal_of, quadratic, shares, theta_of
from torch import Tensor
from typer.testing import CliRunner

import pvi
from pvi.aggregators import Experts
from pvi.algorithms import Algorithm
from pvi.algorithms.fola import FirstPrior
from pvi.cavities import Setting, no_deletion
from pvi.cli import app
from pvi.factors import as_factor
from pvi.families.precision import natural_from_precision, precision
from pvi.models import logistic_regression
from pvi.schedules import Dropouts, Synchronous
from pvi.solvers import Given, LaplaceSteps, LocalSteps
from pvi.solvers.descent import Descent
from pvi.solvers.rule import Begun, Ended, Likelihood
from pvi.start import start

MINI = {"epochs": 2, "batch_size": 7, "learning_rate": 0.02}
SLOWLY = MINI | {"learning_rate": 1e-4}
"""Squared gradients of rows are large where the fit is bad, and a step towards the prior goes by them."""
CURVATURES = ("empirical-fisher", "mean-gradient", "ggn", "hessian")


def precision_of(posterior):
    return precision(posterior.family, posterior.natural)


def location_of(posterior):
    return posterior.family.location(posterior.natural)


def together(**options):
    return pvi.executors.Vectorised(compile=False, **options)


def with_an_empty_column(sizes=(30, 12, 40)):
    """A feature that is 0 in all rows: no client's data say anything of its weight."""
    return [(torch.cat([x, torch.zeros_like(x[:, :1])], 1), y) for x, y in clients(sizes)]


def squares_by_hand(x, y, theta, noise=0.5):
    """(21): the mean over rows of squared gradients of the linear regression, written out."""
    a = torch.cat([x, x.new_ones(len(x), 1)], 1)
    total = torch.zeros_like(theta)
    for row, outcome in zip(a, y, strict=True):
        total = total + (row * (outcome - row @ theta) / noise**2).square()
    return total / len(y)


@pytest.mark.parametrize("structure", ["diagonal", "full"])
def test_rounds_unrolled(structure):
    """(24) over R rounds is (25): Λ_{S,R} = Λ_p + R⁻¹ Σ_r Σ_n π_n F_{n,r}, the prior of round 1 kept in."""
    data, rounds = with_an_empty_column((10, 4, 13)), 5
    algorithm = pvi.FOLA(structure=structure, keep_local=True, prior_precision=2.0, **SLOWLY)
    flat = torch.full((4,), 2.0, dtype=DOUBLE)
    prior = flat if structure == "diagonal" else torch.diag(flat)
    before, total = prior, torch.zeros_like(prior)
    for r, result in enumerate(pvi.fit_rounds(MODEL, data, algorithm=algorithm, rounds=rounds), 1):
        for share, own in zip(shares(data), result.personal.values(), strict=True):
            fisher = r * precision_of(own) - (r - 1) * before - prior
            least = fisher.min() if fisher.ndim == 1 else torch.linalg.eigvalsh(fisher).min()
            assert least > -1e-10 * fisher.abs().max()
            total = total + share * fisher
        before = precision_of(result.posterior)
        torch.testing.assert_close(before, prior + total / r, rtol=1e-10, atol=1e-10)
        untouched = before[2] if before.ndim == 1 else before[2, 2]  # weights, then bias
        assert untouched.item() == pytest.approx(2.0, rel=1e-14)
        assert location_of(result.posterior)[2].item() == pytest.approx(0.0, abs=1e-12)


def test_the_sum_has_the_squares_of_single_rows():
    """The same with F_{n,r} computed by hand where each client ended, in units of all rows: n times (21)."""
    data, rounds = with_an_empty_column(), 4
    algorithm = pvi.FOLAOffline(keep_local=True, **SLOWLY)
    everybody, total = sum(len(y) for _, y in data), torch.zeros(4, dtype=DOUBLE)
    for r, result in enumerate(pvi.fit_rounds(MODEL, data, algorithm=algorithm, rounds=rounds), 1):
        parts = zip(shares(data), data, personal_of(result), strict=True)
        total = total + everybody * sum(w * squares_by_hand(x, y, theta) for w, (x, y), theta in parts)
        torch.testing.assert_close(precision_of(result.posterior), 1 + total / r, rtol=1e-10, atol=1e-10)


def test_posteriors_of_more_rows_are_narrower():
    """The same clients twice: twice the information of the data."""
    algorithm = pvi.FOLA(curvature="ggn", local_iterations=5, batch_size=None)
    once = pvi.fit(MODEL, clients(), algorithm=algorithm, rounds=3)
    twice = pvi.fit(MODEL, [*clients(), *clients()], algorithm=algorithm, rounds=3)
    torch.testing.assert_close(precision_of(twice.posterior) - 1, 2 * (precision_of(once.posterior) - 1))


def step_by_step(first, second, rounds, **options):
    runs = zip(
        pvi.fit_rounds(MODEL, clients(), algorithm=first, rounds=rounds, **options),
        pvi.fit_rounds(MODEL, clients(), algorithm=second, rounds=rounds, **options),
        strict=True,
    )
    for one, other in runs:
        torch.testing.assert_close(theta_of(one.posterior), theta_of(other.posterior), rtol=1e-12, atol=1e-12)
        yield one, other


@pytest.mark.parametrize("options", [MINI, {**MINI, "optimiser": "adam", "weights": "equal"}], ids=["sgd", "adam"])
def test_without_prior_and_curvature_it_is_fedavg(options):
    ours = pvi.FOLA(curvature=None, prior_weight=0.0, **options)
    for one, _ in step_by_step(ours, pvi.FedAvg(**options), 5):
        torch.testing.assert_close(precision_of(one.posterior), torch.ones(3, dtype=DOUBLE))


@pytest.mark.parametrize("structure", ["diagonal", "full"])
@pytest.mark.parametrize("aggregation", ["experts", "average"])
def test_with_a_flat_prior_and_no_curvature_it_is_fedprox(aggregation, structure):
    """μ = λ c / n: the means of the prior are where runs start."""
    weight, flat, rows = 30.0, 4.0, sum(len(y) for _, y in clients())
    ours = pvi.FOLA(
        weight, prior_precision=flat, curvature=None, aggregation=aggregation, structure=structure, keep_prior=False,
        **MINI,
    )  # fmt: skip
    for _ in step_by_step(ours, pvi.FedProx(weight * flat / rows, **MINI), 5):
        pass


def test_named_variants():
    """They are FOLA with one default changed."""
    for variant, changed in (
        (pvi.FOLAOffline, {"online": False}),
        (pvi.FOLAExperts, {"prior_weight": 0.0}),
        (pvi.FOLAPrior, {"aggregation": "average"}),
    ):
        few = {"local_iterations": 2, "batch_size": None}
        for _ in step_by_step(variant(**few), pvi.FOLA(**changed, **few), 2):
            pass
        assert variant(prior_weight=0.5, online=True).solver.rule == LaplaceSteps(
            batch_size=32, prior_weight=0.5, online=True
        )


def visit_of(problem, posterior, state, weight):
    """Where a visit in the second round ends, at a client that is sent ``posterior``."""
    share = state.problem.row_shares[problem.client]
    setting = Setting(as_factor(state.server.prior), len(state.clients), row_share=share, version=1)
    rule = LaplaceSteps(
        300, batch_size=None, learning_rate=0.05 / (1 + weight), prior_weight=weight, curvature=None, keep_prior=False
    )
    found = LocalSteps(rule).visit(problem, Given(posterior.natural, setting, None, 0))
    return problem.family.location(found.natural)


def test_lambda_moves_the_local_optimum_towards_the_servers():
    data = clients()
    sent = pvi.fit(MODEL, data, algorithm=pvi.FOLA(curvature="ggn", **MINI), rounds=1).posterior
    _, state = start(MODEL, data, None, pvi.FOLA(), None, None, 1, None, "loop", 0, "cpu", None)
    centre, matrix = location_of(sent), torch.diag(precision_of(sent))

    def distance(theta):
        return ((theta - centre) @ matrix @ (theta - centre)).sqrt()

    for problem in list(state.problem.clients.values())[1:]:  # the first one's loss is hardly curved in one direction
        ends = [visit_of(problem, sent, state, weight) for weight in (0.0, 1.0, 100.0)]
        away = [distance(theta).item() for theta in ends]
        assert away[2] < away[1] < away[0]
        assert away[2] < 0.1 * away[0]
        assert (ends[2] - ends[0]) @ matrix @ (centre - ends[0]) > 0.9 * distance(ends[0]) ** 2
        h, g = quadratic(*data[int(problem.client[-1])])
        for weight, theta in zip((0.0, 1.0, 100.0), ends, strict=True):
            pull = weight / 82 * matrix
            torch.testing.assert_close(theta, torch.linalg.solve(h + pull, g + pull @ centre), rtol=0, atol=1e-4)


@pytest.mark.parametrize("keep_prior", [True, False], ids=["kept", "published"])
@pytest.mark.parametrize("structure", ["diagonal", "full"])
def test_the_priors_gradient(structure, keep_prior):
    """A step of length 1 has it beside the likelihood's: by finite differences of (λ/n) ½ (θ - μ)ᵀ Λ (θ - μ).

    And of the model's own prior N(0, 1) where that is kept.
    """
    data, weight = clients(), 6.0
    algorithm = pvi.FOLA(structure=structure)
    _, state = start(MODEL, data, None, algorithm, None, None, 1, None, "loop", 0, "cpu", None)
    problem = state.problem.clients["client 1"]
    generator = torch.Generator().manual_seed(0)
    root, centre, theta = (torch.randn(*shape, generator=generator, dtype=DOUBLE) for shape in ((3, 3), (3,), (3,)))
    matrix = root @ root.T if structure == "full" else torch.diag(root[0].square())
    own = matrix if structure == "full" else matrix.diagonal()
    natural = natural_from_precision(problem.family, centre, own)
    setting = Setting(as_factor(state.server.prior), 3, row_share=12 / 82, version=1)

    def end(weight):
        rule = LaplaceSteps(
            learning_rate=1.0, prior_weight=weight, curvature=None, structure=structure, keep_prior=keep_prior
        )
        ready = rule.begin(problem, Given(natural, setting, None, 0), 12)
        ready = Begun((theta, *ready.state[1:]), ready.fixed)
        at = Likelihood(lambda loc, sd: lambda x: -3.0 * x.square().sum(), problem.batch)
        return rule.step(problem, ready, theta.new_empty(0), at)[0][0]

    def loss(theta):
        own = theta @ theta if keep_prior else 0.0
        return weight / 82 * 0.5 * ((theta - centre) @ matrix @ (theta - centre) + own)

    eye = 1e-4 * torch.eye(3, dtype=DOUBLE)
    slope = torch.stack([(loss(theta + step) - loss(theta - step)) / 2e-4 for step in eye])
    torch.testing.assert_close(end(0.0) - end(weight), slope, rtol=1e-8, atol=1e-8)


# Executors.


def binary(sizes=(30, 12, 1, 7)):
    """Clients of very different sizes, one with a single row."""
    generator, found = torch.Generator().manual_seed(3), []
    for k, n in enumerate(sizes):
        x = torch.randn(n, 2, generator=generator, dtype=DOUBLE) + 0.3 * k
        noise = torch.randn(n, generator=generator, dtype=DOUBLE)
        found.append((x, (x @ torch.tensor([1.0, -0.7], dtype=DOUBLE) + noise > 0.2).double()))
    return found


def same(algorithm, executor, rounds=3, model=logistic_regression.model, name="vectorised"):
    """Runs under the loop and under another executor agree: posteriors, what clients keep, what is said."""
    first, second = (
        pvi.fit(model, binary(), algorithm=algorithm, rounds=rounds, seed=4, executor=one)
        for one in ("loop", executor)
    )  # fmt: skip
    assert {info.executor for record in second.history for info in record.visits} == {name}
    torch.testing.assert_close(second.posterior.natural, first.posterior.natural, rtol=1e-10, atol=1e-10)
    assert first.personal.keys() == second.personal.keys()
    for one, other in zip(first.personal.values(), second.personal.values(), strict=True):
        torch.testing.assert_close(other.natural, one.natural, rtol=1e-10, atol=1e-10)
    for one, other in zip(first.history, second.history, strict=True):
        assert one.rejected == other.rejected == {}
        for name in one.clients:
            mine, theirs = one.clients[name].solver, other.clients[name].solver
            assert (mine.steps, mine.message) == (theirs.steps, theirs.message)
            assert mine.free_energy == pytest.approx(theirs.free_energy, rel=1e-9)
    return first


@pytest.mark.parametrize(
    ("online", "batch_size"), [(True, None), (True, 5), (False, 5)], ids=["online", "batches", "offline"]
)
@pytest.mark.parametrize("structure", ["diagonal", "full", "e-full"])
@pytest.mark.parametrize("curvature", CURVATURES)
def test_executors_agree(curvature, structure, online, batch_size):
    """All rows of clients of different sizes at once: padding is no row."""
    same(
        pvi.FOLA(
            structure=structure, curvature=curvature, online=online, epochs=2, batch_size=batch_size,
            learning_rate=0.2, keep_local=True,
        ),
        together(),
        rounds=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    "algorithm",
    [
        pvi.FOLA(curvature=None, local_iterations=3, batch_size=None),
        pvi.FOLA(optimiser="adam", local_iterations=6, batch_size=4, aggregation="average"),
        pvi.FOLA(clients_per_round=2, epochs=1, batch_size=None, weights="equal"),
        pvi.FOLAPrior(epochs=1, batch_size=5),
        pvi.FOLAExperts(epochs=1, batch_size=5, keep_local=True),
        pvi.FedCurv(epochs=2, batch_size=5, keep_local=True),
        pvi.FedCurv(local_iterations=3, batch_size=None, clients_per_round=3),
    ],
    ids=["no curvature", "adam", "subsets", "prior", "experts", "fedcurv", "fedcurv subsets"],
)
def test_executors_agree_on_variants(algorithm):
    same(algorithm, together())


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        pvi.FOLA(epochs=2, batch_size=5),
        pvi.FOLA(structure="full", curvature="ggn", local_iterations=3, batch_size=None),
        pvi.FedCurv(epochs=2, batch_size=5),
    ],
    ids=["diagonal", "full", "fedcurv"],
)
def test_compiled(algorithm):
    same(algorithm, pvi.executors.Vectorised(compile=True))


def test_few_clients_at_once():
    same(pvi.FOLA(epochs=1, batch_size=None), together(max_clients_at_once=2))


def two_layers(x, y=None):
    """Layers whose squared gradients come with the gradient."""
    first = pyro.sample("first", dist.Normal(x.new_zeros(4, x.shape[1]), 1.0).to_event(2))
    second = pyro.sample("second", dist.Normal(x.new_zeros(2, 4), 1.0).to_event(2))
    hidden = torch.tanh(torch.nn.functional.linear(x, first))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Categorical(logits=torch.nn.functional.linear(hidden, second)), obs=y)


@pytest.mark.parametrize("batch_size", [None, 5], ids=["all rows", "batches"])
def test_executors_agree_on_a_network(batch_size):
    data = [(x, y.long()) for x, y in binary()]

    def weights(x, y=None):
        pyro.sample("first", dist.Normal(0.1 * torch.arange(8.0, dtype=DOUBLE).reshape(4, 2), 0.1).to_event(2))
        pyro.sample("second", dist.Normal(0.1 * torch.arange(8.0, dtype=DOUBLE).reshape(2, 4), 0.1).to_event(2))

    algorithm = pvi.FOLA(epochs=1, batch_size=batch_size, learning_rate=0.3)
    runs = [
        pvi.fit(two_layers, data, weights, algorithm=algorithm, rounds=2, executor=one) for one in ("loop", together())
    ]
    torch.testing.assert_close(runs[1].posterior.natural, runs[0].posterior.natural, rtol=1e-10, atol=1e-10)
    assert (precision_of(runs[0].posterior) > 1).any()


def test_absent_clients_say_nothing():
    """A round's experts are those who answered; a round without any leaves q and the count of rounds."""
    away = {"client 0": [(1, 3)], "client 1": [(1, 2)], "client 2": [(1, 2)]}
    algorithm = pvi.FOLA(curvature="ggn", local_iterations=2, batch_size=None)
    schedule = Dropouts(Synchronous(), away=away)
    runs = list(pvi.fit_rounds(MODEL, clients(), algorithm=algorithm, schedule=schedule, rounds=3))
    assert torch.equal(runs[1].posterior.natural, runs[0].posterior.natural)
    a = [torch.cat([x, torch.ones(len(x), 1, dtype=DOUBLE)], 1) for x, _ in clients()]
    fisher = [82 * (part.square().sum(0) / len(part) / 0.25) for part in a]
    first = 1 + sum(w * f for w, f in zip(shares(clients()), fisher, strict=True))
    torch.testing.assert_close(precision_of(runs[1].posterior), first, rtol=1e-10, atol=0)
    second = 0.5 * first + 0.5 * (1 + (12 * fisher[1] + 40 * fisher[2]) / 52)
    torch.testing.assert_close(precision_of(runs[2].posterior), second, rtol=1e-10, atol=0)


# A result like any other.


def test_a_result_comes_back(tmp_path):
    data = binary((30, 12))
    result = pvi.fit(
        "logistic_regression", data, algorithm=pvi.FOLA(structure="full", keep_local=True, epochs=1), rounds=2
    )
    result.save(tmp_path / "run")
    loaded = pvi.load(tmp_path / "run")
    assert torch.equal(loaded.posterior.natural, result.posterior.natural)
    assert loaded.settings == result.settings
    assert loaded.settings["options"]["structure"] == "full"
    assert loaded.personal.keys() == {"client 0", "client 1"}
    x, y = data[0]
    for one in (result, loaded, result.of_client("client 1")):
        density = one.log_predictive_density(x, y)["y"]
        assert density.shape == (30,)
        assert (density < 0).all()
        assert one.predict(x, num_samples=20)["y"].shape == (20, 30)
    mean = result.predict_mean(x)["y"]
    torch.testing.assert_close(loaded.predict_mean(x)["y"], mean)
    assert (mean - loaded.predict_mean(x, client="client 1")["y"]).abs().max() > 1e-4
    draws = result.to_arviz(num_samples=50)
    assert draws.posterior["weights"].shape[-1] == 2
    assert result.elbo_name == "ELBO"


def test_the_elbo_is_a_bound_of_the_evidence():
    """At the exact posterior of a linear regression it is the evidence."""
    data = clients((15, 6))
    algorithm = pvi.FOLA(
        structure="full", curvature="ggn", local_iterations=600, batch_size=None, learning_rate=0.1
    )  # fmt: skip
    result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=1)
    a = torch.cat([torch.cat([x, x.new_ones(len(x), 1)], 1) for x, _ in data])
    y = torch.cat([y for _, y in data])
    noise = torch.distributions.MultivariateNormal(torch.zeros_like(y), a @ a.T + 0.25 * torch.eye(len(y)).to(y))
    assert result.elbo == pytest.approx(noise.log_prob(y).item(), abs=1e-6)


def test_from_the_command_line(tmp_path, monkeypatch):
    """The same run as from Python."""
    monkeypatch.setenv("NO_COLOR", "1")
    paths = []
    for k, (x, y) in enumerate(binary((30, 20))):
        paths.append(tmp_path / f"hospital{k}.csv")
        lines = [f"{a},{b},{int(c)}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]
        paths[-1].write_text("\n".join(["age,dose,died", *lines]))
    words = ["fit", *map(str, paths), "--target", "died", "--algorithm", "fola", "--set", "epochs=2", "--set",
             "structure=full", "--rounds", "2", "--holdout", "0",
             "--out", str(tmp_path / "run")]  # fmt: skip
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, outcome.output
    found = pvi.load(tmp_path / "run")
    assert found.settings["options"]["structure"] == "full"
    assert precision_of(found.posterior).shape == (3, 3)
    refused = CliRunner().invoke(app, [*words, "--set", "prior_precision=0"])
    assert refused.exit_code == 2
    assert "prior_precision is a finite number above 0" in " ".join(refused.output.split())


# A row of the table of one's own.


@dataclass(frozen=True)
class Natural(Descent):
    """A step of Newton's method on each client's own rows, the curvature kept as the precision of its answer."""

    name = "newton-step"
    by_layer = None

    def check(self, problem):
        """All problems are fine."""

    def begin(self, problem, given, rows_a_step):
        theta = problem.family.location(given.natural)
        return Begun((theta, torch.diag(theta)), (precision(problem.family, given.natural),))

    def step(self, problem, begun, numbers: Tensor, at: Likelihood):
        (theta, _), (prior,) = begun.state, begun.fixed
        value, total = at(theta, theta)(theta), at(theta, theta)
        matrix = prior - torch.func.jacrev(torch.func.grad(total))(theta)
        return (theta + torch.linalg.solve(matrix, torch.func.grad(total)(theta)), matrix), value

    def end(self, problem, begun, given):
        return Ended(natural_from_precision(problem.family, *begun.state))


def test_a_row_of_ones_own():
    algorithm = Algorithm(
        "newton-experts", no_deletion, Experts(), damping=1.0, fixed=True, factors=False, gaussian_prior=True,
        solver=LocalSteps(Natural(local_iterations=1, batch_size=None)), start=FirstPrior(None),
        guide=pvi.FullCovariance(),
    )  # fmt: skip
    first = same(algorithm, together(), rounds=1)
    pulls = []
    for share, (x, y) in zip(shares(binary()), binary(), strict=True):
        a = torch.cat([x, x.new_ones(len(x), 1)], 1)
        matrix = torch.eye(3, dtype=DOUBLE) + 0.25 * a.T @ a
        pulls.append((share * matrix, share * matrix @ torch.linalg.solve(matrix, a.T @ (y - 0.5))))
    mean = torch.linalg.solve(sum(part for part, _ in pulls), sum(part for _, part in pulls))
    torch.testing.assert_close(theta_of(first.posterior), mean, rtol=1e-10, atol=1e-10)


def test_full_precisions_count_as_matrices():
    """So that clients of large ones are solved a few at a time, not all at once."""
    needed, data = [], clients()
    for structure in ("full", "diagonal"):
        algorithm = pvi.FOLA(structure=structure)
        plan, state = start(MODEL, data, None, algorithm, None, None, 1, None, "loop", 0, "cpu", None)
        needed.append(plan.solver.bytes_a_client(state.problem.clients["client 0"]))
    assert needed[0] - needed[1] == 20 * (9 - 6) * 8  # three latents' natural parameters, eight bytes each
