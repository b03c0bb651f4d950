"""Layers drawn row by row: the same expectations as plain draws of the weights, with less noise, or left alone."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.nn import PyroModule, PyroSample
from torch import nn
from torch.func import grad, grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from toy_programs import F64, LIKE, normal

from pvi.programs.batch import as_batch
from pvi.programs.errors import ProgramError
from pvi.programs.find_layers import find_layers
from pvi.programs.guides import FullCovariance, MeanField, approximation
from pvi.programs.layers import flipout, local_linear, local_shift
from pvi.programs.local_reparameterisation import Layers, NotLocal, log_likelihood_local
from pvi.programs.program import Program, log_likelihood
from pvi.programs.sites import discover

NOISE = 0.7
X, Y = normal(6, 4, seed=1), normal(6, seed=2)
STANDARD_ERRORS = 5.0
"""Chance failures are then rarer than one in a million numbers compared."""


@pytest.fixture(autouse=True)
def own_store():
    """Modules leave their parameters in Pyro's store."""
    with pyro.get_param_store().scope():
        yield


class Setting:
    """A program, its layers, and points of q in (loc, log sd) coordinates."""

    def __init__(self, model, *data, guide=None, loc=None, sd=0.5):
        self.batch = as_batch(data, "a")
        sites = discover(model, self.batch, "a")
        found = approximation(guide or MeanField(), sites.shared, self.batch)
        self.program, self.family = Program(model, sites, found.coordinates), found.family
        self.layers = find_layers(self.program, self.family, self.batch, LIKE)
        self.size = found.coordinates.size
        loc = 0.5 * normal(self.size, seed=11) if loc is None else loc
        self.point = torch.stack([loc, torch.full_like(loc, math.log(sd))])

    def noise(self, draws, seed=0):
        rows = self.batch.num_rows
        return normal(draws, self.size, seed=seed), normal(draws, rows, self.layers.num_noise, seed=seed + 1)

    def plain(self, point, noise):
        return log_likelihood(self.program, point[0] + point[1].exp() * noise, self.batch)

    def local(self, point, noise, row_noise, **options):
        loc, sd = point[0], point[1].exp()
        batch = options.pop("batch", self.batch)
        return log_likelihood_local(self.program, self.layers, loc + sd * noise, loc, sd, row_noise, batch, **options)

    def local_draws(self, draws, seed=0):
        """Gradients ``[draws, 2 * size]`` and values ``[draws]`` of the estimate."""
        gradients, values = vmap(lambda e, r: grad_and_value(self.local)(self.point, e, r))(*self.noise(draws, seed))
        return gradients.flatten(1), values

    def plain_draws(self, draws, seed=7):
        gradients, values = vmap(lambda e: grad_and_value(self.plain)(self.point, e))(
            normal(draws, self.size, seed=seed)
        )
        return gradients.flatten(1), values


def assert_mean(draws, expected, variance=0.0):
    """The mean of draws is what it should be, given the variance of that itself."""
    error = (draws.var(0) / len(draws) + variance).sqrt()
    assert ((draws.mean(0) - expected).abs() <= STANDARD_ERRORS * error + 1e-9).all()


def assert_agree(first, second):
    assert_mean(first, second.mean(0), second.var(0) / len(second))


def weights(*shape, name="w"):
    return pyro.sample(name, dist.Normal(torch.zeros(shape), 1.0).to_event(len(shape)))


def observe(f, y, noise=NOISE):
    with pyro.plate("observed", len(y)):
        pyro.sample("y", dist.Normal(f, noise), obs=y)


# Linear models: the expectation is known.


def with_operators(x, y):
    w, b = weights(4), pyro.sample("b", dist.Normal(0.0, 1.0))
    observe(x @ w + b, y)


def with_bias_first(x, y):
    with pyro.plate("columns", 4):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    observe(torch.add(b, torch.mv(x, w)), y)


def with_linear(x, y):
    observe(functional.linear(x, weights(1, 4), weights(1, name="b")).squeeze(-1), y)


def with_addmm(x, y):
    w, b = weights(1, 4), weights(1, name="b")
    observe(torch.addmm(b, x, w.t())[:, 0], y)


def with_slices(x, y):
    whole = weights(5)
    w, b = whole[:4].reshape(1, 4), whole[4:]
    observe((x @ w.mT + b).squeeze(1), y)


def with_flipout_of_one(x, y):
    h = functional.linear(x[:, None].expand(-1, 2, -1), weights(1, 4), weights(1, name="b"))
    observe(h.mean((1, 2)), y)


def with_convolution(x, y):
    observe(functional.conv1d(x[:, None], weights(1, 1, 4), weights(1, name="b")).flatten(), y)


class Linear(PyroModule):
    def __init__(self):
        super().__init__()
        self.layer = PyroModule[nn.Linear](4, 1)
        self.layer.weight = PyroSample(dist.Normal(torch.zeros(1, 4, dtype=F64), 1.0).to_event(2))
        self.layer.bias = PyroSample(dist.Normal(torch.zeros(1, dtype=F64), 1.0).to_event(1))

    def forward(self, x, y):
        observe(self.layer(x)[:, 0], y)


LINEAR = [
    pytest.param(with_operators, {local_linear, local_shift}, id="operators"),
    pytest.param(with_bias_first, {local_linear, local_shift}, id="bias first, in a plate"),
    pytest.param(with_linear, {local_linear}, id="linear"),
    pytest.param(with_addmm, {local_linear}, id="addmm"),
    pytest.param(with_slices, {local_linear, local_shift}, id="slices of one site"),
    pytest.param(with_flipout_of_one, {flipout}, id="two vectors a row"),
    pytest.param(with_convolution, {flipout}, id="convolution"),
    pytest.param(Linear(), {local_linear}, id="module"),
]


@pytest.mark.parametrize(("model", "draws"), LINEAR)
def test_a_linear_model_has_its_exact_expectation(model, draws):
    setting = Setting(model, X, Y)
    assert isinstance(setting.layers, Layers), setting.layers
    assert set(setting.layers.sites) == set(setting.program.coordinates.names)
    assert {call.draw for call in setting.layers.calls} == draws

    def exact(point):
        loc, variance = point[0], (2 * point[1]).exp()
        mean, spread = X @ loc[:4] + loc[4], X.square() @ variance[:4] + variance[4]
        return dist.Normal(mean, NOISE).log_prob(Y).sum() - spread.sum() / (2 * NOISE**2)

    gradient, value = grad_and_value(exact)(setting.point)
    gradients, values = setting.local_draws(4000)
    assert_mean(values, value)
    assert_mean(gradients, gradient.flatten())


# Networks: plain draws tell the truth, with more noise.


def network(x, y):
    h = torch.tanh(x @ weights(4, 8, name="w1") + weights(8, name="b1"))
    observe((h @ weights(8, 1, name="w2") + weights(1, name="b2"))[:, 0], y)


class Network(PyroModule):
    """Bayesian weights, biases that are parameters in the first layer."""

    def __init__(self):
        super().__init__()
        self.first = PyroModule[nn.Linear](4, 8, dtype=F64)
        self.first.weight = PyroSample(dist.Normal(torch.zeros(8, 4, dtype=F64), 1.0).to_event(2))
        self.first.bias = nn.Parameter(torch.linspace(-1, 1, 8, dtype=F64))
        self.second = PyroModule[nn.Linear](8, 1)
        self.second.weight = PyroSample(dist.Normal(torch.zeros(1, 8, dtype=F64), 1.0).to_event(2))
        self.second.bias = PyroSample(dist.Normal(torch.zeros(1, dtype=F64), 1.0).to_event(1))

    def forward(self, x, y):
        f = self.second(torch.tanh(self.first(x))).squeeze(-1)
        keep = torch.tensor([True, True, False, True, True, True])[: len(y)]
        with pyro.plate("observed", len(y)), poutine.scale(scale=0.5), poutine.mask(mask=keep):
            pyro.sample("y", dist.Normal(f, NOISE), obs=y)


def residual(x, y):
    h = x @ weights(4, 4, name="w1")
    observe((h + torch.tanh(h @ weights(4, 4, name="w2"))).square().sum(-1), y, 5.0)


def heads(x, y):
    # One vector a row and head, each head with weights of its own.
    h = torch.tanh(x[:, None, None] @ weights(3, 4, 2, name="w1"))
    observe((h.flatten(1) @ weights(6, name="w2")).square(), y, 5.0)


def sequences(x, y):
    # Two vectors a row meet the same weights: their product depends on the joint law.
    h = x.reshape(-1, 2, 2) @ weights(2, 3, name="w1") + weights(3, name="b1")
    observe(h.prod(1) @ weights(3, name="w2"), y, 5.0)


def convolutions(x, y):
    image = x.reshape(-1, 1, 2, 2)
    h = functional.conv2d(image, weights(2, 1, 2, 2, name="w1"), weights(2, name="b1"), padding=1)
    h = functional.conv2d(functional.softplus(h), weights(2, 1, 2, 2, name="w2"), stride=1, groups=2)
    observe(h.flatten(1).square().mean(1), y, 5.0)


NETWORKS = [
    pytest.param(network, {"w1", "b1", "w2", "b2"}, id="operators"),
    pytest.param(Network(), {"first.weight", "second.weight", "second.bias"}, id="module, mask and scale"),
    pytest.param(residual, {"w1", "w2"}, id="outputs used twice"),
    pytest.param(heads, {"w1", "w2"}, id="heads"),
    pytest.param(sequences, {"w1", "b1", "w2"}, id="sequences"),
    pytest.param(convolutions, {"w1", "b1", "w2"}, id="convolutions"),
]


@pytest.mark.parametrize(("model", "sites"), NETWORKS)
def test_values_and_gradients_agree_with_plain_draws(model, sites):
    setting = Setting(model, X, Y)
    assert isinstance(setting.layers, Layers), setting.layers
    assert set(setting.layers.sites) == sites
    local, plain = setting.local_draws(8000), setting.plain_draws(8000)
    for first, second in zip(local, plain, strict=True):
        assert_agree(first, second)


def test_gradients_of_a_network_are_less_noisy():
    x = normal(40, 4, seed=3)
    setting = Setting(network, x, torch.sin(x[:, 0]), sd=0.2)
    local, plain = setting.local_draws(1000)[0].var(0), setting.plain_draws(1000)[0].var(0)
    # Measured: 9.7 for the locations, 18 for the log standard deviations.
    assert local[: setting.size].sum() < plain[: setting.size].sum() / 2
    assert local[setting.size :].sum() < plain[setting.size :].sum() / 5


def test_pixels_of_a_row_keep_their_joint_law():
    """The mean over pixels of a convolution is linear in the weights: the expectation is known."""
    image, y = normal(5, 1, 3, 3, seed=4), normal(5, seed=5)

    def model(image, y):
        observe(functional.conv2d(image, weights(1, 1, 2, 2)).mean((1, 2, 3)), y)

    setting = Setting(model, image, y)
    patches = functional.unfold(image, 2)  # [rows, weights, pixels]
    loc, variance = setting.point[0], (2 * setting.point[1]).exp()
    fit = dist.Normal(patches.mean(-1) @ loc, NOISE).log_prob(y).sum()
    exact = fit - (patches.mean(-1).square() @ variance).sum() / (2 * NOISE**2)
    by_pixel = fit - (patches.square().mean(-1) @ variance).sum() / patches.shape[-1] / (2 * NOISE**2)
    _, values = setting.local_draws(4000)
    assert_mean(values, exact)
    # What pixels drawn independently of each other would give.
    assert (values.mean() - by_pixel).abs() > 10 * values.std() / math.sqrt(4000)


# What is left alone.


def tied(x, y):
    w = weights(4, 3, name="w1")
    observe((torch.tanh(x @ w) @ w.T).sum(1), y)


def recurrent(x, y):
    w, state = weights(1, 1, name="w1"), x[:, :1]
    for t in range(1, 4):
        state = torch.tanh(x[:, t : t + 1] + state @ w)
    observe(state[:, 0], y)


def also_the_noise(x, y):
    w = weights(4, name="w1")
    observe(x @ w, y, w.square().sum().sqrt() + 0.5)


def a_parent(x, y):
    w = weights(4, name="w1")
    u = pyro.sample("w2", dist.Normal(w, 1.0).to_event(1))
    observe(x @ (0.5 * u) + x @ w, y)


def recorded(x, y):
    w = weights(4, name="w1")
    pyro.deterministic("copy", w)
    observe(x @ w, y)


def overlapping(x, y):
    whole = weights(6, name="w1")
    observe(x @ whole[:4] + torch.tanh(x @ whole[2:]), y)


def gathered(x, y):
    observe(x @ weights(3, name="w1")[torch.tensor([0, 1, 2, 0])], y)


def positive(x, y):
    observe(x @ pyro.sample("w1", dist.LogNormal(torch.zeros(4), 1.0).to_event(1)), y)


def on_the_left(x, y):
    observe(weights(4, name="w1") @ x.mT, y)


def changed_in_place(x, y):
    w = weights(4, name="w1").clone()
    w[0] = 1.0
    observe(x @ w, y)


def columns_first(x, y):
    observe((x.mT @ weights(6, 4, name="w1")).sum() + x[:, 0], y)


def per_row_weights(x, y):
    h = torch.baddbmm(x[:, None], x[:, None], weights(6, 4, 4, name="w1"))
    observe(h.sum((1, 2)), y)


@pytest.mark.parametrize(
    "model",
    [
        tied,
        recurrent,
        also_the_noise,
        a_parent,
        recorded,
        overlapping,
        gathered,
        positive,
        on_the_left,
        changed_in_place,
        columns_first,
        per_row_weights,
    ],
    ids=lambda model: model.__name__,
)
def test_weights_used_otherwise_keep_their_plain_draws(model):
    alone = Setting(model, X, Y).layers
    assert isinstance(alone, NotLocal)
    assert "nothing else" in alone.reason or "no site" in alone.reason

    def both(x, y):
        offset = functional.linear(x, weights(1, 4), weights(1, name="b"))[:, 0]
        with poutine.mask(mask=torch.ones(len(y), dtype=torch.bool)):
            model(x, y)
            pyro.sample("z", dist.Normal(offset, NOISE).to_event(1), obs=y)

    # Beside such a site, other layers are found, and the estimate is right.
    setting = Setting(both, X, Y, sd=0.3)
    assert isinstance(setting.layers, Layers), setting.layers
    assert set(setting.layers.sites) == {"w", "b"}
    for first, second in zip(setting.local_draws(4000), setting.plain_draws(4000), strict=True):
        assert_agree(first, second)


def test_full_covariance_sites_keep_their_plain_draws():
    guide = FullCovariance(("w1", "b1"))
    setting = Setting(network, X, Y, guide=guide)
    assert isinstance(setting.layers, Layers)
    assert set(setting.layers.sites) == {"w2", "b2"}
    assert isinstance(Setting(network, X, Y, guide=FullCovariance()).layers, NotLocal)
    # The plain draws come from elsewhere, here the same independent Gaussians.
    for first, second in zip(setting.local_draws(4000), setting.plain_draws(4000), strict=True):
        assert_agree(first, second)


class Hidden(torch.autograd.Function):
    """Torch tells overrides nothing of such functions."""

    @staticmethod
    def forward(context, w):
        return w.square().sum()


def unseen(x, y):
    w = weights(4)
    observe(x @ w, y, 0.5 + Hidden.apply(w))


def wrapped(x, y):
    w = weights(4)
    observe(x @ w, y, 0.5 + vmap(torch.square)(w).sum())


def normalised(x, y):
    h = x @ weights(4, 3)
    observe(functional.batch_norm(h, None, None, training=True).sum(1), y)


def pooled(x, y):
    h = (x @ weights(4)).mean()
    observe(h.expand(len(y)), y)


def neighbours(x, y):
    h = x @ weights(4)
    observe(h + 0.1 * torch.cat([h[1:], h[:1]]), y)


def one_outcome(x, y):
    pyro.sample("y", dist.Normal((x @ weights(4)).sum(), 1.0), obs=y.sum())


def rows_by_chance(x, y):
    table = torch.linspace(-1, 1, 36).reshape(6, 6)  # as many rows as the data has
    observe(x.sum(1) * torch.tanh(table @ weights(6)).sum(), y)


def correlated(x, y):
    covariance = torch.eye(len(y)) + 0.5
    pyro.sample("y", dist.MultivariateNormal(x @ weights(4), covariance), obs=y)


@pytest.mark.parametrize(
    "model",
    [unseen, wrapped, normalised, pooled, neighbours, one_outcome, rows_by_chance, correlated],
    ids=lambda model: model.__name__,
)
def test_rows_that_mix_and_weights_used_unseen_are_found_out(model):
    found = Setting(model, X, Y).layers
    assert isinstance(found, NotLocal)
    assert "row" in found.reason


def test_a_likelihood_without_a_row_axis_may_be_local():
    def model(x, y):
        pyro.sample("y", dist.Normal(x @ weights(4), NOISE).to_event(1), obs=y)

    assert isinstance(Setting(model, X, Y).layers, Layers)


def test_discrete_latents_and_subsampling_plates_are_told():
    def mixture(x, y):
        w = weights(4)
        with pyro.plate("observed", len(y)):
            z = pyro.sample("z", dist.Bernoulli(0.3))
            pyro.sample("y", dist.Normal(x @ w + z, NOISE), obs=y)

    def subsampled(x, y):
        w = weights(4)
        with pyro.plate("observed", len(y), subsample_size=2) as rows:
            pyro.sample("y", dist.Normal(x[rows] @ w, NOISE), obs=y[rows])

    for model in (mixture, subsampled):
        found = Setting(model, X, Y).layers
        assert isinstance(found, NotLocal)
        assert "subsamples" in found.reason


def test_a_use_that_changes_is_an_error():
    def model(x, y):
        w = weights(4)
        observe(x @ w if len(x) == 6 else x.tanh() @ w + (x @ w).square(), y)

    def shorter(x, y):
        w = weights(4, name="w")
        observe(x @ w if len(x) == 6 else x.sum(1), y)

    for changing in (model, shorter):
        setting = Setting(changing, X, Y)
        noise, row_noise = setting.noise(1)
        with pytest.raises(ProgramError, match=r"\['w'\].*without local"):
            setting.local(setting.point, noise[0], row_noise[0, :3], batch=setting.batch.take(torch.arange(3)))


# The numbers it works with.


def test_rows_of_zeros_have_gradients():
    x = X.clone()
    x[1] = 0.0

    def model(x, y):
        observe((torch.relu(x @ weights(4, 3, name="w1")) @ weights(3, 1, name="w2"))[:, 0], y)

    setting = Setting(model, x, Y, sd=0.1)
    gradients, _ = setting.local_draws(50)
    assert torch.isfinite(gradients).all()
    assert_agree(setting.local_draws(4000)[0], setting.plain_draws(4000)[0])


def test_row_weights_and_scale_count_as_they_should():
    setting = Setting(network, X, Y)
    noise, row_noise = (numbers[0] for numbers in setting.noise(1))
    rows = vmap(lambda w: setting.local(setting.point, noise, row_noise, weights=w))(torch.eye(6, dtype=F64))
    torch.testing.assert_close(setting.local(setting.point, noise, row_noise), rows.sum())
    half = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.0, 0.5], dtype=F64)
    weighted = setting.local(setting.point, noise, row_noise, weights=half, scale=1.5)
    torch.testing.assert_close(weighted, 1.5 * half @ rows)


def test_minibatches_are_unbiased_and_take_any_number_of_rows():
    for model in (network, sequences):
        setting = Setting(model, X, Y)
        noise, row_noise = (numbers[0] for numbers in setting.noise(1))
        whole = setting.local(setting.point, noise, row_noise)
        parts = [
            setting.local(setting.point, noise, row_noise[rows], batch=setting.batch.take(rows), scale=3.0)
            for rows in torch.arange(6).split(2)
        ]
        torch.testing.assert_close(torch.stack(parts).mean(), whole)


def test_graphs_and_stacks_of_clients_give_the_same():
    setting = Setting(sequences, X, Y)
    noise, row_noise = setting.noise(3)
    points = torch.stack([setting.point, setting.point + 0.1, setting.point - 0.1])
    x, y = normal(3, 6, 4, seed=6), normal(3, 6, seed=8)

    def gradient(point, noise, row_noise, x, y):
        return grad(lambda point: setting.local(point, noise, row_noise, batch=as_batch((x, y), "a")))(point)

    each = [gradient(*one) for one in zip(points, noise, row_noise, x, y, strict=True)]
    stacked = vmap(gradient)
    torch.testing.assert_close(stacked(points, noise, row_noise, x, y), torch.stack(each))
    graph = make_fx(stacked)(points.flip(0), noise.flip(0), row_noise.flip(0), x.flip(0), y.flip(0))
    torch.testing.assert_close(graph(points, noise, row_noise, x, y), torch.stack(each))


def test_global_state_is_left_alone():
    state = torch.get_rng_state()
    setting = Setting(network, X, Y)
    setting.local_draws(2)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() == torch.float32
