"""Squared gradients of rows in one pass: as those of each row alone, for layers of every kind, or row by row."""

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.nn import PyroModule, PyroSample
from torch import nn
from torch.func import vmap
from torch.nn import functional
from toy_programs import F64, LIKE, normal, program_of, unknown_noise

from pvi.capture import Captured
from pvi.families import DiagonalGaussian
from pvi.models import bayesian_mlp, bayesian_vgg, logistic_regression
from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.find_layers import find_layers
from pvi.programs.layers import flipout, local_linear, local_shift
from pvi.programs.local_reparameterisation import Layers
from pvi.programs.row_gradients import row_gradients
from pvi.programs.squared_gradients import covers, squared_gradients
from pvi.programs.weighted import weighted_log_likelihood

X, Y = normal(6, 4, seed=1), normal(6, seed=2)
CLASSES = torch.tensor([0, 2, 1, 1, 0, 2])
IMAGES = normal(6, 2, 4, 4, seed=3)
PRESENT = torch.tensor([1, 1, 0, 1, 0, 1], dtype=F64)


@pytest.fixture(autouse=True)
def own_store():
    """Modules leave their parameters in Pyro's store."""
    with pyro.get_param_store().scope():
        yield


def examined(model, *data):
    """A program, its batch, its layers, and a point."""
    program, batch = program_of(model, *data)
    size = program.coordinates.size
    found = find_layers(program, DiagonalGaussian(size), batch, LIKE)
    return program, batch, found if isinstance(found, Layers) else None, 0.5 * normal(size, seed=9)


def weights(*shape, name="w"):
    return pyro.sample(name, dist.Normal(torch.zeros(shape), 1.0).to_event(len(shape)))


def observe(f, y):
    with pyro.plate("observed", len(y)):
        pyro.sample("y", dist.Normal(f, 0.7), obs=y)


mlp = partial(bayesian_mlp.model, hidden=(5, 3), classes=3)
vgg = partial(bayesian_vgg.model, layers=(3, "M", 4), classes=3)


def bias_first(x, y):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    observe(torch.add(b, torch.mv(x, weights(4))), y)


def addmm(x, y):
    observe(torch.addmm(weights(1, name="b"), x, weights(1, 4).t())[:, 0], y)


def slices(x, y):
    whole = weights(6)  # the last one is not used
    observe((x @ whole[:4].reshape(1, 4).mT + whole[4:5]).squeeze(1), y)


def residual(x, y):
    h = x @ weights(4, 4, name="w1")
    observe((h + torch.tanh(h @ weights(4, 4, name="w2"))).square().sum(-1), y)


def heads(x, y):
    h = torch.tanh(x[:, None, None] @ weights(3, 4, 2, name="w1") + weights(3, 1, 2, name="b1"))
    observe(h.flatten(1) @ weights(6, name="w2"), y)


def broadcast_shifts(x, y):
    h = torch.tanh(x[:, :, None] + weights(1, 3, name="b1")) + weights(4, 1, name="b2")
    observe((h + weights(1, name="b3")).square().sum((1, 2)), y)


def sequences(x, y):
    h = functional.linear(x.reshape(-1, 2, 2), weights(3, 2, name="w1"), weights(3, name="b1"))
    observe((h + weights(3, name="b2")).prod(1) @ weights(3, name="w2"), y)


def convolution(x, y, **geometry):
    h = functional.conv2d(x, weights(2, 2 // geometry.get("groups", 1), 2, 2), weights(2, name="b"), **geometry)
    observe(h.square().sum((1, 2, 3)), y)


def line(x, y):
    observe(functional.conv1d(x[:, None], weights(2, 1, 3), weights(2, name="b")).square().sum((1, 2)), y)


class Module(PyroModule):
    """With a scale, and a plain parameter for a bias."""

    def __init__(self):
        super().__init__()
        self.layer = PyroModule[nn.Linear](4, 1)
        self.layer.weight = PyroSample(dist.Normal(torch.zeros(1, 4, dtype=F64), 1.0).to_event(2))
        self.layer.bias = nn.Parameter(torch.ones(1, dtype=F64))

    def forward(self, x, y):
        with poutine.scale(scale=0.5):
            observe(self.layer(x)[:, 0], y)


COVERED = [
    pytest.param(mlp, (X, CLASSES), {local_linear}, id="network"),
    pytest.param(vgg, (IMAGES, CLASSES), {flipout, local_linear}, id="convolutional network"),
    pytest.param(logistic_regression.model, (X, (Y > 0).to(F64)), {local_linear, local_shift}, id="logistic"),
    pytest.param(bias_first, (X, Y), {local_linear, local_shift}, id="bias first"),
    pytest.param(addmm, (X, Y), {local_linear}, id="addmm"),
    pytest.param(slices, (X, Y), {local_linear, local_shift}, id="slices of one site"),
    pytest.param(residual, (X, Y), {local_linear}, id="outputs used twice"),
    pytest.param(heads, (X, Y), {local_linear, local_shift}, id="heads"),
    pytest.param(broadcast_shifts, (X, Y), {local_shift}, id="shifts along some axes"),
    pytest.param(sequences, (X, Y), {flipout, local_shift, local_linear}, id="sequences"),
    pytest.param(partial(convolution, stride=(1, 2), padding=1), (IMAGES, Y), {flipout}, id="strides and padding"),
    pytest.param(partial(convolution, dilation=2), (IMAGES, Y), {flipout}, id="dilation"),
    pytest.param(partial(convolution, padding="same", dilation=2), (IMAGES, Y), {flipout}, id="padding in words"),
    pytest.param(partial(convolution, groups=2), (IMAGES, Y), {flipout}, id="groups"),
    pytest.param(line, (X, Y), {flipout}, id="convolution of lines"),
    pytest.param(Module(), (X, Y), {local_linear}, id="module"),
]


@pytest.mark.parametrize(("model", "data", "kinds"), COVERED)
@pytest.mark.parametrize("present", [None, PRESENT], ids=["all rows", "padding"])
def test_squares_are_those_of_each_row_alone(model, data, kinds, present):
    program, batch, layers, x = examined(model, *data)
    assert covers(program, layers)
    assert {call.draw for call in layers.calls} == kinds
    value, gradient, squares = squared_gradients(program, layers, x, batch, present)
    rows = row_gradients(program, x, batch, present)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(squares, rows.square().sum(0), **exact)
    torch.testing.assert_close(gradient, rows.sum(0), **exact)
    torch.testing.assert_close(value, weighted_log_likelihood(program, x, batch, present), **exact)
    for one, other in zip((value, gradient, squares), squared_gradients(program, None, x, batch, present), strict=True):
        torch.testing.assert_close(one, other, **exact)


def test_logistic_regression_has_its_closed_form():
    labels = (Y > 0).to(F64)
    program, batch, layers, x = examined(logistic_regression.model, X, labels)
    design = torch.cat([X, torch.ones_like(X[:, :1])], 1)
    errors = labels - torch.sigmoid(design @ x)
    for known in (layers, None):
        found = squared_gradients(program, known, x, batch)
        torch.testing.assert_close(found.squares, errors.square() @ design.square())
        torch.testing.assert_close(found.gradient, errors @ design)
        torch.testing.assert_close(
            found.value, -functional.binary_cross_entropy_with_logits(design @ x, labels, reduction="sum")
        )


def test_the_program_runs_once():
    calls = []

    def counting(x, y):
        calls.append(len(x))
        mlp(x, y)

    program, batch, layers, x = examined(counting, X, CLASSES)
    calls.clear()
    squared_gradients(program, layers, x, batch)
    assert calls == [6]


def squares_of(program, layers, point, x, y, present):
    return tuple(squared_gradients(program, layers, point, Batch((x, y), {}), present))


@pytest.mark.parametrize(("model", "x"), [(mlp, X), (vgg, IMAGES)], ids=["network", "convolutional network"])
def test_stacks_of_clients_and_graphs_give_the_same(model, x):
    program, _, layers, point = examined(model, x, CLASSES)
    points, xs = point + 0.1 * normal(3, len(point), seed=4), normal(3, *x.shape, seed=5)
    ys, present = torch.stack([CLASSES, CLASSES.flip(0), CLASSES]), torch.stack([PRESENT, PRESENT.flip(0), PRESENT])
    data, other = (points, xs, ys, present), (points + 1, xs.flip(0), ys, present.flip(0))
    for known in (layers, None):
        stacked = partial(squares_of, program, known)
        each = [torch.stack(values) for values in zip(*map(stacked, *data), strict=True)]
        for found in (vmap(stacked)(*data), Captured(vmap(stacked), other, False)(*data)):
            torch.testing.assert_close(list(found), each)


# What layers do not cover.


def also_the_noise(x, y):
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    f = x @ weights(4)
    with pyro.plate("observed", len(y)):
        pyro.sample("y", dist.Normal(f, scale), obs=y)


def bias_used_twice(x, y):
    b = weights(1, name="b")
    observe((functional.linear(x, weights(1, 4), b) + b.exp())[:, 0], y)


def tied(x, y):
    w = weights(4, 3)
    observe((torch.tanh(x @ w) @ w.T).sum(1) + x @ weights(4, name="v"), y)


@pytest.mark.parametrize("model", [also_the_noise, bias_used_twice, tied], ids=lambda model: model.__name__)
@pytest.mark.parametrize("present", [None, PRESENT], ids=["all rows", "padding"])
def test_other_programs_go_row_by_row(model, present):
    program, batch, layers, x = examined(model, X, Y)
    assert layers is not None
    assert not covers(program, layers)
    value, gradient, squares = squared_gradients(program, layers, x, batch, present)
    rows = row_gradients(program, x, batch, present)
    torch.testing.assert_close(squares, rows.square().sum(0))
    torch.testing.assert_close(gradient, rows.sum(0))
    torch.testing.assert_close(value, weighted_log_likelihood(program, x, batch, present))


def test_no_layers_cover_nothing():
    program, batch, layers, x = examined(unknown_noise, Y)
    assert layers is None
    assert not covers(program, None)
    rows = row_gradients(program, x, batch)
    torch.testing.assert_close(squared_gradients(program, None, x, batch).squares, rows.square().sum(0))


def test_a_use_that_changes_is_an_error():
    def squared(x, y):
        w = weights(4)
        observe(x @ w if len(x) == 6 else x.tanh() @ w + (x @ w).square(), y)

    def left_out(x, y):
        w = weights(4)
        observe(x @ w if len(x) == 6 else x.sum(1), y)

    def reshaped(x, y):
        w = weights(4)
        observe(x @ w if len(x) == 6 else x.repeat(2, 1) @ w, y.repeat(1 if len(x) == 6 else 2))

    for model in (squared, left_out, reshaped):
        program, batch, layers, x = examined(model, X, Y)
        assert covers(program, layers)
        with pytest.raises(ProgramError, match=r"\['w'\] otherwise.*row by row"):
            squared_gradients(program, layers, x, batch.take(torch.arange(3)))
