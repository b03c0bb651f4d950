"""Gradients row by row: closed forms, finite differences, stacks, graphs, and models without rows."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.func import vmap
from toy_programs import F64, normal, program_of, regression, subsampled, unknown_noise

from pvi.capture import Captured
from pvi.models import bayesian_mlp, logistic_regression
from pvi.programs.batch import Batch
from pvi.programs.program import log_likelihood
from pvi.programs.row_gradients import check_rows, row_gradients

X, Y = normal(7, 3, seed=1), normal(7, seed=2)
LABELS = (Y > 0).to(F64)
PRESENT = torch.tensor([1, 1, 0, 1, 1, 0, 1], dtype=F64)


def with_column(x):
    """The bias is the last coordinate."""
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def test_logistic_regression_has_its_closed_form():
    program, batch = program_of(logistic_regression.model, X, LABELS)
    point, design = normal(4, seed=3), with_column(X)
    expected = (LABELS - torch.sigmoid(design @ point))[:, None] * design
    torch.testing.assert_close(row_gradients(program, point, batch), expected)
    torch.testing.assert_close(
        row_gradients(program, point, batch, PRESENT), torch.where(PRESENT[:, None] > 0, expected, 0.0)
    )


def test_constrained_latents_have_the_gradients_of_their_coordinates():
    program, batch = program_of(unknown_noise, Y)
    point, step = torch.tensor([0.3, -0.4], dtype=F64), 1e-5
    rows = [Batch((row[None],), {}) for row in Y]
    differences = [
        torch.stack(
            [
                (log_likelihood(program, point + e, row) - log_likelihood(program, point - e, row)) / (2 * step)
                for e in step * torch.eye(2, dtype=F64)
            ]
        )
        for row in rows
    ]
    torch.testing.assert_close(row_gradients(program, point, batch), torch.stack(differences), rtol=1e-7, atol=1e-8)


def test_arguments_without_rows_stay():
    def scaled(x, factor, y=None, power=1):
        w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(factor * (x @ w) ** power, 1.0), obs=y)

    program, batch = program_of(scaled, x=X, factor=torch.tensor(2.0, dtype=F64), y=Y, power=1)
    point = normal(3, seed=4)
    torch.testing.assert_close(row_gradients(program, point, batch), 2 * (Y - 2 * X @ point)[:, None] * X)
    check_rows(program, point, batch, "a")


def test_stacks_of_clients_and_graphs_give_the_same():
    program, _ = program_of(regression, X, Y)
    points, x, y = normal(3, 4, seed=5), normal(3, 7, 3, seed=6), normal(3, 7, seed=7)
    weights = torch.stack([PRESENT, PRESENT.flip(0), torch.ones(7, dtype=F64)])

    def rows(point, x, y, weights):
        return row_gradients(program, point, Batch((x, y), {}), weights)

    each = torch.stack([rows(*one) for one in zip(points, x, y, weights, strict=True)])
    torch.testing.assert_close(vmap(rows)(points, x, y, weights), each)
    graph = Captured(lambda *tensors: (vmap(rows)(*tensors),), (points + 1, x.flip(0), y.flip(0), weights), False)
    torch.testing.assert_close(graph(points, x, y, weights)[0], each)


@pytest.mark.parametrize(
    ("model", "data"),
    [(regression, (X, Y)), (unknown_noise, (Y,)), (logistic_regression.model, (X, LABELS))],
    ids=["regression", "unknown noise", "logistic regression"],
)
def test_sums_over_rows_pass(model, data):
    program, batch = program_of(model, *data)
    for point in (torch.zeros(program.coordinates.size, dtype=F64), normal(program.coordinates.size)):
        check_rows(program, point, batch, "a")
        whole = torch.func.grad(lambda x, batch=batch: log_likelihood(program, x, batch))(point)
        torch.testing.assert_close(row_gradients(program, point, batch).sum(0), whole)


def test_sums_over_rows_pass_in_single_precision():
    def model(x, y):
        return bayesian_mlp.model(x, y, hidden=6, classes=3)

    program, batch = program_of(model, X.float(), torch.arange(7) % 3)
    check_rows(program, torch.zeros(program.coordinates.size), batch, "a")


def centred(x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal((x - x.mean(0)) @ w, 1.0), obs=y)


def averaged(x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with pyro.poutine.scale(scale=1 / len(x)), pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def beside_one_number(x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    pyro.sample("anchor", dist.Normal(w.sum(), 1.0), obs=x.new_tensor(0.3))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def correlated(x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    pyro.sample("y", dist.MultivariateNormal(x @ w, torch.eye(len(x)) + 0.5), obs=y)


def two_rows_at_least(x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ w + 0.0 * x[1, 0], 1.0), obs=y)


@pytest.mark.parametrize("model", [centred, averaged, beside_one_number, correlated], ids=lambda model: model.__name__)
def test_rows_that_are_no_terms_of_a_sum_are_found_out(model):
    program, batch = program_of(model, X, Y)
    with pytest.raises(ValueError, match=r"client 'clinic'.*looks across its rows.*use curvature"):
        check_rows(program, torch.zeros(3, dtype=F64), batch, "clinic")


def test_a_model_that_fails_on_one_row_is_told():
    program, batch = program_of(two_rows_at_least, X, Y)
    with pytest.raises(ValueError, match=r"client 'clinic': the model fails on one row.*IndexError.*use curvature"):
        check_rows(program, torch.zeros(3, dtype=F64), batch, "clinic")


def mixture(y):
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Bernoulli(0.3))
        pyro.sample("y", dist.Normal(loc + z, 1.0), obs=y)


def with_private(y):
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(loc + z, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (subsampled, "'rows' draws its own rows: leave subsample_size out"),
        (mixture, r"sites \['z'\] are discrete"),
        (with_private, r"sites \['z'\] have one private value a row"),
    ],
    ids=["subsampling", "enumerated", "private"],
)
def test_sites_that_have_no_rows_are_told(model, words):
    program, batch = program_of(model, Y)
    with pytest.raises(ValueError, match=f"client 'clinic'.*{words}.*use curvature"):
        check_rows(program, torch.zeros(program.coordinates.size, dtype=F64), batch, "clinic")


def test_a_gradient_that_is_not_finite_is_told():
    program, batch = program_of(regression, X, Y)
    with pytest.raises(ValueError, match=r"client 'clinic'.*not finite.*another point"):
        check_rows(program, torch.full((4,), torch.nan, dtype=F64), batch, "clinic")
