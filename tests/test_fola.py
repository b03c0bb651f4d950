"""FOLA against closed forms, Newton's method, and a plain torch loop of the published equations."""

import logging

import pyro
import pyro.distributions as dist
import pytest
import torch
from quadratic_clients import DOUBLE, MODEL, quadratic, shares, theta_of
from toy_programs import unknown_noise

import pvi
from pvi.families.precision import precision
from pvi.models import logistic_regression
from pvi.solvers.draws import minibatches, row_generator
from pvi.start import start

PRIOR = torch.eye(3, dtype=DOUBLE)
CONVERGED = {"local_iterations": 200, "batch_size": None, "learning_rate": 0.12}
"""Enough steps for the losses of :func:`even`."""


def even(sizes=(30, 12, 40)):
    """Linear regressions with different slopes, whose losses are curved about the same in all directions."""
    generator, found = torch.Generator().manual_seed(1), []
    for k, n in enumerate(sizes):
        x = torch.randn(n, 2, generator=generator, dtype=DOUBLE)
        y = x @ torch.tensor([1.0 + k, -2.0 * k], dtype=DOUBLE) + k
        found.append((x, y + 0.5 * torch.randn(n, generator=generator, dtype=DOUBLE)))
    return found


def precision_of(posterior):
    return precision(posterior.family, posterior.natural)


def exact(data, prior=PRIOR, centre=None):
    """Mean and precision of the linear regression's posterior given everybody's rows."""
    parts = [(len(y), *quadratic(x, y)) for x, y in data]
    matrix = prior + sum(n * h for n, h, _ in parts)
    pull = sum(n * g for n, _, g in parts) + (0 if centre is None else prior @ centre)
    return torch.linalg.solve(matrix, pull), matrix


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("curvature", ["ggn", "hessian"])
def test_one_round_of_linear_regression_is_exact(curvature, online):
    """Π_n (p(θ) p(D_n | θ)^(n/n_n))^(n_n/n) is the posterior of all rows: each part is Gaussian, so nothing is lost."""
    data = even()
    algorithm = pvi.FOLA(structure="full", curvature=curvature, online=online, **CONVERGED)
    result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=1)
    mean, matrix = exact(data)
    torch.testing.assert_close(theta_of(result.posterior), mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(precision_of(result.posterior), matrix, rtol=1e-8, atol=0)
    covariance = result.posterior.family.members[0].standard(result.posterior.natural)["covariance_matrix"]
    torch.testing.assert_close(covariance, torch.linalg.inv(matrix), rtol=0, atol=1e-8)


@pytest.mark.parametrize("online", [True, False])
def test_a_diagonal_has_the_diagonal_of_the_exact_precision(online):
    data = even()
    algorithm = pvi.FOLA(curvature="ggn", online=online, **CONVERGED)
    result = pvi.fit(MODEL, data, algorithm=algorithm, rounds=1)
    torch.testing.assert_close(precision_of(result.posterior), exact(data)[1].diagonal(), rtol=1e-8, atol=0)


def correlated(x, y):
    """A prior whose coordinates hang together, with means that are not 0; features without a bias column."""
    weights = pyro.sample("weights", dist.Normal(x.new_tensor([0.5, -1.0]), 0.8).to_event(1))
    bias = pyro.sample("bias", dist.Normal(weights.sum() + 2.0, 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights + bias, 0.5), obs=y)


def test_a_prior_with_means_and_correlations():
    data = even((15, 6))
    root = torch.tensor([[1 / 0.8, 0, 0], [0, 1 / 0.8, 0], [-2, -2, 2]], dtype=DOUBLE)
    mean, matrix = exact(data, root.T @ root, torch.tensor([0.5, -1.0, 1.5], dtype=DOUBLE))
    algorithm = pvi.FOLA(structure="full", curvature="ggn", **CONVERGED)
    result = pvi.fit(correlated, data, algorithm=algorithm, rounds=1)
    torch.testing.assert_close(theta_of(result.posterior), mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(precision_of(result.posterior), matrix, rtol=1e-8, atol=1e-8)


def test_another_prior_precision():
    """It takes the place of the model's from the first round on; the prior's means stay."""
    data = even((15, 6))
    root = torch.tensor([0.5, -1.0, 1.5], dtype=DOUBLE)
    algorithm = pvi.FOLA(structure="full", curvature="ggn", prior_precision=3.0, **CONVERGED)
    result = pvi.fit(correlated, data, algorithm=algorithm, rounds=1)
    mean, matrix = exact(data, 3 * PRIOR, root)
    torch.testing.assert_close(theta_of(result.posterior), mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(precision_of(result.posterior), matrix, rtol=1e-8, atol=1e-8)


def newton(x, y, prior):
    """Mode and negative Hessian of the logistic regression's log posterior, by iteratively reweighted least squares."""
    a, theta = torch.cat([x, x.new_ones(len(x), 1)], 1), x.new_zeros(x.shape[1] + 1)
    for _ in range(50):
        p = torch.sigmoid(a @ theta)
        matrix = a.T @ ((p * (1 - p))[:, None] * a) + prior
        theta = theta + torch.linalg.solve(matrix, a.T @ (y - p) - prior @ theta)
    return theta, matrix


@pytest.mark.parametrize("curvature", ["ggn", "hessian"])
def test_one_client_at_its_mode_is_laplaces_approximation(curvature):
    (x, y), *_ = binary((60,))
    algorithm = pvi.FOLA(
        structure="full", curvature=curvature, online=False, local_iterations=800, batch_size=None, learning_rate=1.5
    )
    result = pvi.fit(logistic_regression.model, [(x, y)], algorithm=algorithm, rounds=1)
    mode, matrix = newton(x, y, PRIOR)
    torch.testing.assert_close(theta_of(result.posterior), mode, rtol=0, atol=1e-8)
    torch.testing.assert_close(precision_of(result.posterior), matrix, rtol=1e-8, atol=0)


def test_a_positive_latent_has_its_laplace_approximation_in_its_logarithm():
    y = 2.5 + 1.3 * torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    algorithm = pvi.FOLA(
        structure="full", curvature="hessian", online=False, local_iterations=600, batch_size=None, learning_rate=0.3
    )
    result = pvi.fit(unknown_noise, [(y,)], algorithm=algorithm, rounds=1)

    def log_joint(z):
        normal = torch.distributions.Normal
        prior = normal(1.0, 2.0).log_prob(z[0]) + normal(0.3, 0.5).log_prob(z[1])  # of log scale
        return prior + normal(z[0], z[1].exp()).log_prob(y).sum()

    mode = torch.tensor([2.0, 0.0], dtype=DOUBLE)
    for _ in range(30):
        gradient, matrix = torch.func.grad(log_joint)(mode), -torch.autograd.functional.hessian(log_joint, mode)
        mode = mode + torch.linalg.solve(matrix, gradient)
    torch.testing.assert_close(result.posterior.family.location(result.posterior.natural), mode, rtol=0, atol=1e-8)
    torch.testing.assert_close(precision_of(result.posterior), matrix, rtol=1e-8, atol=1e-8)


# A plain loop, in torch alone.


def binary(sizes=(30, 12, 5)):
    """Rows of a logistic regression that differ from client to client."""
    generator, found = torch.Generator().manual_seed(3), []
    for k, n in enumerate(sizes):
        x = torch.randn(n, 2, generator=generator, dtype=DOUBLE) + 0.5 * k
        noise = torch.randn(n, generator=generator, dtype=DOUBLE)
        found.append((x, (x @ torch.tensor([1.0, -0.7], dtype=DOUBLE) + noise > 0.2).double()))
    return found


def seeds_of(model, data):
    """The clients' seeds of a run with seed 0."""
    _, state = start(model, data, None, "pvi", None, None, 1, None, "loop", 0, "cpu", None)
    return [client.seed for client in state.clients.values()]


def curvature_by_hand(a, y, theta, curvature):
    """``[d, d]``, of the mean of a row."""
    p = torch.sigmoid(a @ theta)
    each = [(y[j] - p[j]) * a[j] for j in range(len(y))]
    if curvature == "empirical-fisher":
        return sum(torch.outer(g, g) for g in each) / len(y)
    if curvature == "mean-gradient":
        mean = sum(each) / len(y)
        return torch.outer(mean, mean)
    return sum(p[j] * (1 - p[j]) * torch.outer(a[j], a[j]) for j in range(len(y))) / len(y)


def plain(data, seeds, rounds, *, epochs, batch, rate, curvature, structure="diagonal", online=True, weight=1.0,
          weights="rows", average=False, prior=PRIOR, begin=None, keep=False):  # fmt: skip
    """(μ_S, Λ_S) after every round of the published algorithm, for the logistic regression; Λ_S as a matrix.

    With ``keep`` the first prior, whose mean is 0, pulls in the later rounds too.
    """
    everybody = sum(len(y) for _, y in data)
    share = shares(data) if weights == "rows" else torch.full((len(data),), 1 / len(data), dtype=DOUBLE)
    centre, held = torch.zeros(3, dtype=DOUBLE), prior
    begin, found = centre if begin is None else begin, []
    for r in range(1, rounds + 1):
        answers = []
        for (x, y), seed in zip(data, seeds, strict=True):
            a, theta, seen = torch.cat([x, x.new_ones(len(x), 1)], 1), begin, []
            size = len(y) if batch is None or batch >= len(y) else batch
            rows = minibatches(len(y), batch, row_generator(seed + r - 1, x.device))
            for _, chosen in zip(range(epochs * (len(y) // size)), rows, strict=False):
                part, target = (a, y) if chosen is None else (a[chosen], y[chosen])
                seen.append(curvature_by_hand(part, target, theta, curvature))
                gradient = part.T @ (torch.sigmoid(part @ theta) - target) / len(target)
                pull = held @ (theta - centre) + (prior @ theta if keep and r > 1 else 0)
                theta = theta - rate * (gradient + weight / everybody * pull)
            fisher = sum(seen) / len(seen)
            if not online and curvature == "mean-gradient":
                cut = [slice(k, k + size) for k in range(0, len(y) - size + 1, size)]
                fisher = sum(curvature_by_hand(a[part], y[part], theta, curvature) for part in cut) / len(cut)
            elif not online:
                fisher = curvature_by_hand(a, y, theta, curvature)
            if structure == "diagonal":
                fisher = torch.diag(fisher.diagonal())
            if structure == "e-full":
                fisher = torch.diag(torch.linalg.eigvalsh(fisher))
            own = (1 - 1 / r) * held / everybody + (fisher + prior / everybody) / r  # (24), a mean of rows
            answers.append((theta, everybody * own))
        held = sum(w * own for w, (_, own) in zip(share, answers, strict=True))
        if average:
            centre = sum(w * theta for w, (theta, _) in zip(share, answers, strict=True))
        else:
            pull = sum(w * own @ theta for w, (theta, own) in zip(share, answers, strict=True))
            centre = torch.linalg.solve(held, pull)
        begin = centre
        found.append((centre, held))
    return found


def compare(algorithm, expected, data, **options):
    runs = pvi.fit_rounds(logistic_regression.model, data, algorithm=algorithm, rounds=len(expected), **options)
    for result, (mean, matrix) in zip(runs, expected, strict=True):
        own = precision_of(result.posterior)
        torch.testing.assert_close(theta_of(result.posterior), mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(own if own.ndim == 2 else torch.diag(own), matrix, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("online", [True, False], ids=["online", "offline"])
@pytest.mark.parametrize("structure", ["diagonal", "full", "e-full"])
@pytest.mark.parametrize("curvature", ["empirical-fisher", "mean-gradient", "ggn", "hessian"])
def test_the_published_algorithm(curvature, structure, online):
    """Three rounds of mini-batches at clients of different sizes, one with fewer rows than a batch."""
    data = binary()
    expected = plain(
        data, seeds_of(logistic_regression.model, data), 3, epochs=2, batch=8, rate=0.3, curvature=curvature,
        structure=structure, online=online,
    )  # fmt: skip
    algorithm = pvi.FOLA(
        epochs=2, batch_size=8, learning_rate=0.3, curvature=curvature, structure=structure, online=online,
        keep_prior=False,
    )  # fmt: skip
    compare(algorithm, expected, data)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"prior_weight": 5.0}, {"weight": 5.0}),
        ({"prior_weight": 0.0}, {"weight": 0.0}),
        ({"prior_precision": 7.0, "prior_weight": 3.0}, {"prior": 7.0 * PRIOR, "weight": 3.0}),
        ({"weights": "equal"}, {"weights": "equal"}),
        ({"aggregation": "average"}, {"average": True}),
        ({"aggregation": "average", "weights": "equal", "structure": "full"},
         {"average": True, "weights": "equal", "structure": "full"}),
        ({"batch_size": None, "structure": "full"}, {"batch": None, "structure": "full"}),
        ({"batch_size": 1}, {"batch": 1}),
        ({"keep_prior": True}, {"keep": True}),
        ({"keep_prior": True, "structure": "full", "prior_precision": 7.0, "prior_weight": 3.0},
         {"keep": True, "structure": "full", "prior": 7.0 * PRIOR, "weight": 3.0}),
    ],
    ids=lambda options: " ".join(options),
)  # fmt: skip
def test_options_of_the_published_algorithm(ours, theirs):
    data = binary()
    settings = {"epochs": 1, "batch": 4, "rate": 0.2, "curvature": "empirical-fisher"}
    expected = plain(data, seeds_of(logistic_regression.model, data), 3, **settings | theirs)
    ours = {"epochs": 1, "batch_size": 4, "learning_rate": 0.2, "keep_prior": False} | ours
    compare(pvi.FOLA(**ours), expected, data)


def test_rounds_on_end():
    """One client settles at the MAP estimate with its Laplace precision; as published it leaves the prior behind."""
    ((x, y),) = binary((30,))
    mode, matrix = newton(x, y, 20.0 * PRIOR)
    likeliest, _ = newton(x, y, 0 * PRIOR)
    options = {"curvature": "ggn", "structure": "full", "local_iterations": 60, "batch_size": None}
    found = {}
    for keep in (True, False):
        algorithm = pvi.FOLA(learning_rate=1.0, prior_precision=20.0, keep_prior=keep, **options)
        found[keep] = pvi.fit("logistic_regression", [(x, y)], algorithm=algorithm, rounds=60).posterior
    torch.testing.assert_close(theta_of(found[True]), mode, rtol=0, atol=1e-4)
    # (24) averages the rounds' curvature, which is the last one's but for the first few.
    torch.testing.assert_close(precision_of(found[True]), matrix, rtol=0.02, atol=0)
    assert (theta_of(found[False]) - likeliest).norm() < 0.2 * (mode - likeliest).norm()


def begun(x, y=None):
    """Says where to start, away from the prior's means."""
    loc = pyro.param("loc", torch.tensor([0.4, -0.2], dtype=DOUBLE))
    scale = pyro.param("scale", torch.full((2,), 0.1, dtype=DOUBLE), constraint=dist.constraints.positive)
    pyro.sample("weights", dist.Normal(loc, scale).to_event(1))
    pyro.sample("bias", dist.Normal(pyro.param("b", torch.tensor(0.7, dtype=DOUBLE)), 0.1))


def test_steps_that_are_too_large_are_told_once(caplog):
    wide = {"learning_rate": 10.0, "local_iterations": 2, "batch_size": None}
    with caplog.at_level(logging.WARNING, logger="pvi"):
        result = pvi.fit("logistic_regression", binary((30, 12)), algorithm=pvi.FOLA(**wide), rounds=8)
    said = [text for text in caplog.messages if "fallen far" in text]
    assert len(said) == 1
    assert said[0].startswith(f"the ELBO has fallen far, from {result.history[0].elbo:.3f} in round 1 to ")
    assert said[0].endswith("and stays there; use smaller steps")


def test_steps_that_are_far_too_large_are_told_after_any_number_of_rounds(caplog):
    wide = {"learning_rate": 1e4, "local_iterations": 2, "batch_size": None}
    with caplog.at_level(logging.WARNING, logger="pvi"):
        pvi.fit("logistic_regression", binary((30, 12)), algorithm=pvi.FOLA(**wide), rounds=2)
    (said,) = caplog.messages
    assert said.startswith("the ELBO is -")
    assert "millions of nats a row: the steps diverged, use smaller ones" in said


def test_the_start_is_the_guides_and_the_first_centre_the_priors():
    """Nothing else of the guide is used: its standard deviations say nothing."""
    data, settings = binary(), {"epochs": 1, "batch": 4, "rate": 0.2, "curvature": "empirical-fisher"}
    first = torch.tensor([0.4, -0.2, 0.7], dtype=DOUBLE)
    expected = plain(
        data, seeds_of(logistic_regression.model, data), 3, weight=20.0, begin=first, keep=True, **settings
    )
    algorithm = pvi.FOLA(epochs=1, batch_size=4, learning_rate=0.2, prior_weight=20.0)
    compare(algorithm, expected, data, guide=begun)


def test_single_precision():
    algorithm = pvi.FOLA(epochs=2, batch_size=None, learning_rate=0.3, structure="full")
    runs = [
        pvi.fit(logistic_regression.model, binary(), algorithm=algorithm, rounds=10, dtype=dtype)
        for dtype in (torch.float32, DOUBLE)
    ]
    torch.testing.assert_close(runs[0].posterior.natural.double(), runs[1].posterior.natural, rtol=1e-5, atol=1e-5)
