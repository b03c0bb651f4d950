"""Log prior and log likelihood against hand computations, under vmap and grad, and by mini-batches."""

from itertools import combinations

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from toy_programs import F64, normal, program_of, regression, subsampled, unknown_noise

from pvi.programs.program import log_likelihood, log_prior, num_rows, pointwise_log_likelihood
from pvi.solvers.draws import minibatches

X, Y = normal(6, 2, seed=1), normal(6, seed=2)


def by_hand_regression(x):
    weights, bias = x[..., :2], x[..., 2]
    prior = dist.Normal(0.0, 2.0).log_prob(weights).sum(-1) + dist.Normal(0.5, 1.0).log_prob(bias)
    return prior, dist.Normal(weights @ X.mT + bias[..., None], 0.7).log_prob(Y)


def by_hand_noise(x):
    loc, u = x[..., 0], x[..., 1]
    # LogNormal(0.3, 0.5) at exp(u), times the Jacobian exp(u), is Normal(0.3, 0.5) at u.
    prior = dist.Normal(1.0, 2.0).log_prob(loc) + dist.Normal(0.3, 0.5).log_prob(u)
    return prior, dist.Normal(loc[..., None], u.exp()[..., None]).log_prob(Y)


def regression_in_plates(x, y):
    with pyro.plate("columns", x.shape[1]):
        weights = pyro.sample("weights", dist.Normal(0.0, 2.0))
    bias = pyro.sample("bias", dist.Normal(0.5, 1.0))
    pyro.sample("y", dist.Normal(x @ weights + bias, 0.7).to_event(1), obs=y)


CASES = [
    pytest.param(regression, (X, Y), by_hand_regression, id="regression"),
    pytest.param(regression_in_plates, (X, Y), by_hand_regression, id="plates"),
    pytest.param(unknown_noise, (Y,), by_hand_noise, id="constrained"),
]


@pytest.mark.parametrize(("model", "data", "by_hand"), CASES)
def test_densities_against_hand_computations(model, data, by_hand):
    program, batch = program_of(model, *data)
    points = normal(4, program.coordinates.size, seed=3)
    priors, rows = by_hand(points)
    for x, prior, row in zip(points, priors, rows, strict=True):
        torch.testing.assert_close(log_prior(program, x, batch), prior)
        torch.testing.assert_close(log_likelihood(program, x, batch), row.sum())
        found = pointwise_log_likelihood(program, x, batch)["y"]
        torch.testing.assert_close(found.sum(), row.sum())
    vmap = torch.func.vmap
    torch.testing.assert_close(vmap(lambda x: log_prior(program, x, batch))(points), priors)
    torch.testing.assert_close(vmap(lambda x: log_likelihood(program, x, batch))(points), rows.sum(-1))


@pytest.mark.parametrize(("model", "data", "by_hand"), CASES)
def test_gradients_against_hand_computations(model, data, by_hand):
    program, batch = program_of(model, *data)
    points = normal(4, program.coordinates.size, seed=4)
    for function, expected in (
        (log_prior, lambda x: by_hand(x)[0]),
        (log_likelihood, lambda x: by_hand(x)[1].sum()),
    ):
        gradient = torch.func.vmap(torch.func.grad(lambda x, f=function: f(program, x, batch)))(points)
        torch.testing.assert_close(gradient, torch.func.vmap(torch.func.grad(expected))(points))


def test_densities_do_not_touch_global_state():
    for model, data in ((unknown_noise, (Y,)), (subsampled, (Y,))):
        program, batch = program_of(model, *data)
        state = torch.get_rng_state()
        x = torch.zeros(program.coordinates.size, dtype=F64)
        log_prior(program, x, batch)
        log_likelihood(program, x, batch)
        log_likelihood(program, x, batch, torch.tensor([0, 3, 4]))
        assert torch.equal(state, torch.get_rng_state()), model.__name__
        assert torch.get_default_dtype() == torch.float32


def test_scales_and_masks_of_the_model_count():
    keep = torch.tensor([True, False, True, True, False, True])

    def model(y):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)), poutine.scale(scale=0.25), poutine.mask(mask=keep[: len(y)]):
            pyro.sample("y", dist.Normal(loc, 1.0), obs=y)

    program, batch = program_of(model, Y)
    x = torch.tensor([0.4], dtype=F64)
    rows = 0.25 * dist.Normal(x, 1.0).log_prob(Y) * keep
    torch.testing.assert_close(log_likelihood(program, x, batch), rows.sum())
    torch.testing.assert_close(log_prior(program, x, batch), dist.Normal(0.0, 1.0).log_prob(x[0]))


def test_all_observed_sites_count():
    def model(y, z):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(loc, 1.0), obs=y)
            pyro.sample("z", dist.Laplace(loc, 2.0), obs=z)

    program, batch = program_of(model, Y, X[:, 0])
    x = torch.tensor([0.4], dtype=F64)
    expected = dist.Normal(x, 1.0).log_prob(Y).sum() + dist.Laplace(x, 2.0).log_prob(X[:, 0]).sum()
    torch.testing.assert_close(log_likelihood(program, x, batch), expected)
    assert set(pointwise_log_likelihood(program, x, batch)) == {"y", "z"}


def test_keyword_data():
    program, batch = program_of(regression, x=X, y=Y)
    x = normal(3, seed=5)
    torch.testing.assert_close(log_likelihood(program, x, batch), by_hand_regression(x)[1].sum())


@pytest.mark.parametrize("size", [1, 2, 4])
def test_minibatch_estimates_of_whole_tensor_models_are_unbiased(size):
    program, batch = program_of(regression, X, Y)
    x = normal(3, seed=6)
    chosen = [torch.tensor(rows) for rows in combinations(range(6), size)]
    estimates = torch.stack([log_likelihood(program, x, batch, rows) for rows in chosen])
    torch.testing.assert_close(estimates.mean(), log_likelihood(program, x, batch))
    assert num_rows(program, batch) == 6


@pytest.mark.parametrize(("n", "size"), [(6, 3), (7, 3), (7, 5), (5, 1)])
def test_minibatch_estimates_of_subsampling_models_are_unbiased(n, size):
    y = normal(n, seed=7)
    program, batch = program_of(lambda y: subsampled(y, size), y)
    x = torch.tensor([0.3], dtype=F64)
    anchor = dist.Normal(x[0], 2.0).log_prob(torch.tensor(0.3, dtype=F64))
    exact = dist.Normal(x, 1.5).log_prob(y).sum() + anchor
    # Without rows the plate walks through all of them, n a multiple of b or not.
    torch.testing.assert_close(log_likelihood(program, x, batch), exact)
    chosen = [torch.tensor(rows) for rows in combinations(range(n), size)]
    estimates = torch.stack([log_likelihood(program, x, batch, rows) for rows in chosen])
    torch.testing.assert_close(estimates.mean(), exact)
    assert num_rows(program, batch) == n


def test_the_walk_is_safe_under_vmap_and_grad():
    y = normal(7, seed=7)
    program, batch = program_of(subsampled, y)
    points = normal(4, 1, seed=8)
    gradient = torch.func.vmap(torch.func.grad(lambda x: log_likelihood(program, x, batch)))(points)
    expected = (y - points).sum(1) / 1.5**2 + (0.3 - points[:, 0]) / 4
    torch.testing.assert_close(gradient[:, 0], expected)


@pytest.mark.parametrize(("total", "size"), [(6, 2), (7, 3), (5, 5), (5, 4)])
def test_minibatches_repeat_no_row_within_an_epoch_and_favour_none(total, size):
    stream = minibatches(total, size, torch.Generator().manual_seed(0))
    if size >= total:
        assert next(stream) is None
        return
    counts, epochs = torch.zeros(total), 2_000
    for _ in range(epochs):
        rows = torch.cat([next(stream) for _ in range(total // size)])
        assert len(rows.unique()) == len(rows) == total // size * size
        counts[rows] += 1
    share = total // size * size / total
    error = (share * (1 - share) * epochs) ** 0.5
    assert bool(((counts - share * epochs).abs() <= 5 * error).all())


def test_minibatches_without_a_size_take_all():
    stream = minibatches(5, None, torch.Generator())
    assert [next(stream) for _ in range(3)] == [None, None, None]
