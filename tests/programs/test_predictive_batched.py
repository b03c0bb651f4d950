"""Predictions at many draws: batched within a bound on memory, and what happens where they cannot be."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from torch import nn
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from toy_programs import F64, normal

from pvi.programs import predictive
from pvi.programs.batch import as_batch
from pvi.programs.errors import ProgramError
from pvi.programs.predictive import expected_values, pointwise, predicted_values

LIMIT = 20_000


@pytest.fixture(autouse=True)
def own_store():
    """Modules leave their parameters in Pyro's store."""
    with pyro.get_param_store().scope():
        yield


class Network:
    """A network with one hidden layer that counts its runs."""

    def __init__(self, hidden, change=lambda h: h, outputs=None):
        self.hidden, self.change, self.runs = hidden, change, 0
        self.outputs = outputs or (lambda h, w: h @ w)

    def __call__(self, x, y=None):
        self.runs += 1
        x = x.flatten(1)
        w1 = pyro.sample("w1", dist.Normal(x.new_zeros(x.shape[1], self.hidden), 1.0).to_event(2))
        w2 = pyro.sample("w2", dist.Normal(x.new_zeros(self.hidden), 1.0).to_event(1))
        f = self.outputs(torch.tanh(self.change(x @ w1)), w2)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(f, 0.5), obs=y)

    def draws(self, number, columns):
        return {"w1": normal(number, columns, self.hidden, seed=1), "w2": normal(number, self.hidden, seed=2)}


def by_hand(draws, x):
    return torch.einsum("snh,sh->sn", torch.tanh(x.flatten(1) @ draws["w1"]), draws["w2"])


class Largest(TorchDispatchMode):
    """The largest tensor that any operation of torch makes, views apart."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = func(*args, **(kwargs or {}))
        if isinstance(outputs, torch.Tensor) and not func._schema.returns[0].alias_info:
            self.elements = max(self.elements, outputs.numel())
        return outputs


@pytest.mark.parametrize(
    ("hidden", "runs"),
    [
        # 50 rows times 100 units, 4 draws at once: the first alone, the other 99 in 25 parts.
        pytest.param(100, 26, id="wide"),
        pytest.param(10, 4, id="narrow"),
        # One draw alone is too much: 2 at once, the last by itself.
        pytest.param(1000, 51, id="too wide"),
    ],
)
def test_as_many_draws_at_once_as_their_activations_allow(monkeypatch, hidden, runs):
    monkeypatch.setattr(predictive, "MAX_ELEMENTS", LIMIT)
    x, y, model = normal(50, 3, seed=3), normal(50, seed=4), Network(hidden)
    draws = model.draws(100, 3)
    with Largest() as largest:
        found = pointwise(model, ("y",), draws, as_batch((x, y), "a"))["y"]
    assert model.runs == runs
    assert largest.elements <= max(LIMIT, 2 * 50 * hidden)
    torch.testing.assert_close(found, dist.Normal(by_hand(draws, x), 0.5).log_prob(y))


def test_data_that_draws_share_do_not_count(monkeypatch):
    monkeypatch.setattr(predictive, "MAX_ELEMENTS", LIMIT)
    x, model = normal(50, 20, 20, seed=3), Network(2)
    draws = model.draws(100, 400)
    found = expected_values(model, ("y",), draws, as_batch({"x": x}, "a"))["y"]
    assert model.runs == 5  # 800 weights a draw; the data have 20,000 numbers
    torch.testing.assert_close(found, by_hand(draws, x))


class Module(PyroModule):
    """A Bayesian layer between fixed ones."""

    def __init__(self):
        super().__init__()
        self.runs = 0
        self.before = nn.Linear(3, 4, dtype=F64)
        self.middle = PyroModule[nn.Linear](4, 4, dtype=F64)
        self.middle.weight = PyroSample(dist.Normal(torch.zeros(4, 4, dtype=F64), 1.0).to_event(2))

    def forward(self, x, y=None):
        self.runs += 1
        logits = self.middle(torch.tanh(self.before(x))).sum(1)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def test_modules_are_batched():
    model, x = Module(), normal(6, 3, seed=3)
    weight = normal(30, 4, 4, seed=1)
    found = expected_values(model, ("y",), {"middle.weight": weight}, as_batch({"x": x}, "a"))["y"]
    assert model.runs == 2
    h = torch.tanh(model.before(x))
    expected = torch.sigmoid((h @ weight.mT + model.middle.bias).sum(-1)).detach()
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad


def test_a_program_with_a_vmap_of_its_own_is_batched():
    model, x = Network(5, outputs=lambda h, w: vmap(lambda row: row @ w)(h)), normal(6, 3, seed=3)
    draws = model.draws(30, 3)
    found = expected_values(model, ("y",), draws, as_batch({"x": x}, "a"))["y"]
    assert model.runs == 2
    torch.testing.assert_close(found, by_hand(draws, x))


def test_one_draw_is_enough():
    model, x = Network(5), normal(6, 3, seed=3)
    draws = model.draws(1, 3)
    found = expected_values(model, ("y",), draws, as_batch({"x": x}, "a"))["y"]
    torch.testing.assert_close(found, by_hand(draws, x))


def test_control_flow_on_values_runs_draw_by_draw():
    model, x = Network(5, change=lambda h: h if h.sum() > 0 else -h), normal(6, 3, seed=3)
    draws = model.draws(30, 3)
    found = expected_values(model, ("y",), draws, as_batch({"x": x}, "a"))["y"]
    assert model.runs > 30
    signs = (x @ draws["w1"]).sum((1, 2)).sign()[:, None]
    torch.testing.assert_close(found, signs * by_hand(draws, x))


OUTCOMES = [
    pytest.param(lambda f: dist.Normal(f, 2.0), id="normal"),
    pytest.param(lambda f: dist.StudentT(6.0, f, 2.0), id="student"),
    pytest.param(lambda f: dist.Laplace(f, 2.0), id="laplace"),
    pytest.param(lambda f: dist.Exponential(f.exp()), id="exponential"),
    pytest.param(lambda f: dist.Bernoulli(logits=f), id="bernoulli"),
    pytest.param(lambda f: dist.Poisson(f.exp()), id="poisson"),
]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_predictions_are_batched_and_follow_their_distributions(outcome):
    runs = []

    def model(x):
        runs.append(1)
        loc = pyro.sample("loc", dist.Normal(x.new_zeros(()), 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", outcome(x + loc))

    number, x = 4000, torch.tensor([0.5, -0.5], dtype=F64)
    loc = 0.3 * normal(number, seed=9)
    batch = as_batch({"x": x}, "a")
    y = predicted_values(model, ("y",), {"loc": loc}, batch, seed=9)["y"]
    assert len(runs) == 2
    law = outcome(x + loc[:, None])
    z = (y - law.mean) / law.variance.sqrt()
    # Standard normal up to 5 standard errors; the kurtosis is at most 9 here.
    assert (z.mean(0).abs() < 5 / number**0.5).all()
    assert ((z.square().mean(0) - 1).abs() < 5 * (8 / number) ** 0.5).all()
    # Independent of the draw of the latent, whose seed is the same, of the other row, and of other draws.
    for first, second in ((z[:, 0], loc / 0.3), (z[:, 0], z[:, 1]), (z[1:, 0], z[:-1, 0])):
        assert (first * second).mean().abs() < 5 / number**0.5
    assert torch.equal(y, predicted_values(model, ("y",), {"loc": loc}, batch, seed=9)["y"])
    assert not torch.equal(y, predicted_values(model, ("y",), {"loc": loc}, batch, seed=8)["y"])


def test_latents_without_draws_come_from_their_priors():
    def model(x):
        scale = pyro.sample("scale", dist.LogNormal(x.new_zeros(()), 0.1))
        with pyro.plate("rows", len(x)):
            effect = pyro.sample("effect", dist.Normal(x, 3.0))
            pyro.sample("y", dist.Normal(effect, scale))

    x, scale = torch.zeros(2, dtype=F64), torch.ones(4000, dtype=F64)
    batch = as_batch({"x": x}, "a")
    means = expected_values(model, ("y",), {"scale": scale}, batch)["y"]
    values = predicted_values(model, ("y",), {"scale": scale}, batch)["y"]
    for found, variance in ((means, 9.0), (values, 10.0)):
        assert (found.var(0) / variance - 1).abs().max() < 5 * (2 / 4000) ** 0.5


def test_failures_are_told_apart():
    model = Network(5)
    draws, x, y = model.draws(4, 3), normal(6, 3, seed=3), normal(6, seed=4)
    with pytest.raises(ProgramError, match=r"failed on inputs of shapes \[\(6, 2\)\].*'w1': \(3, 5\)"):
        expected_values(model, ("y",), draws, as_batch({"x": x[:, :2]}, "a"))
    with pytest.raises(ProgramError, match="site 'y' has no observations"):
        pointwise(model, ("y",), draws, as_batch({"x": x}, "a"))
    with pytest.raises(ProgramError, match="observations of shape"):
        pointwise(model, ("y",), draws, as_batch({"x": x, "y": y[:, None]}, "a"))
