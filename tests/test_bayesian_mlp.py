"""The bundled network: its density by hand, every outcome, the start of its local solves, and what that is worth."""

from functools import partial
from itertools import pairwise

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from scipy.stats import kstest
from sklearn.datasets import load_digits
from torch.distributions import Bernoulli, Categorical, Normal
from toy_programs import normal

import pvi
from pvi.models import bayesian_mlp
from pvi.models.bayesian_mlp import mean_field_guide, model
from pvi.report import heldout_metrics
from pvi.solvers import SVI
from pvi.solvers.protocol import SolverInfo

X = normal(6, 3, seed=1)
OUTCOMES = {
    "binary": ({}, torch.tensor([0, 1, 1, 0, 1, 0]), lambda f: Bernoulli(logits=f[:, 0])),
    "classes": ({"classes": 4}, torch.tensor([0, 1, 3, 2, 3, 0]), lambda f: Categorical(logits=f)),
    "real": ({"noise_scale": 0.5}, normal(6, seed=2), lambda f: Normal(f[:, 0], 0.5)),
}


def forward(values, x, activation=torch.relu):
    """The network's outputs ``[n, outputs]`` at one draw, by hand."""
    depth = len(values) // 2
    for layer in range(1, depth + 1):
        x = x @ values[f"weights_{layer}"].mT + values[f"bias_{layer}"]
        x = activation(x) if layer < depth else x
    return x


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ({"depth": 0}, []),
        ({"hidden": 5.0}, [5]),
        ({"hidden": 2, "depth": 3.0}, [2, 2, 2]),
        ({"hidden": (4, 2)}, [4, 2]),
    ],
)
def test_density_by_hand(outcome, shape, widths):
    options, y, law = OUTCOMES[outcome]
    trace = poutine.trace(model).get_trace(X, y, prior_scale=2.0, activation=torch.tanh, **shape, **options)
    values = {name: trace.nodes[name]["value"] for name in trace.stochastic_nodes if name != "rows"}
    outputs = 4 if outcome == "classes" else 1
    ends = [3, *widths, outputs]
    shapes = [part for a, b in pairwise(ends) for part in ((b, a), (b,))]
    assert [tuple(value.shape) for value in values.values()] == shapes
    f = forward(values, X, torch.tanh)
    expected = law(f).log_prob(y.to(f)).sum() + sum(Normal(0.0, 2.0).log_prob(value).sum() for value in values.values())
    torch.testing.assert_close(trace.log_prob_sum(), expected)


def test_units_are_rectified_unless_said_otherwise():
    trace = poutine.trace(model).get_trace(X)
    values = {name: trace.nodes[name]["value"] for name in trace.stochastic_nodes if name not in ("rows", "y")}
    torch.testing.assert_close(trace.nodes["y"]["fn"].logits, forward(values, X)[:, 0])
    assert model(X).shape == (6,)
    assert set(model(X, classes=3).tolist()) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": X[0]}, r"x must have shape \[rows, features\], got \[3\]"),
        ({"hidden": 2.5}, "hidden must be a whole number, at least 1, got 2.5"),
        ({"hidden": (3, 0)}, "hidden must be a whole number, at least 1, got 0"),
        ({"hidden": (3, 4), "depth": 2}, "leave depth=2 out"),
        ({"depth": -1}, "depth must be a whole number, at least 0, got -1"),
        ({"classes": 1}, "classes must be a whole number, at least 2, got 1"),
        ({"classes": 3, "noise_scale": 1.0}, "real .* or one of 3 classes, not both"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        model(**{"x": X, **arguments})


class Start:
    """A solver that keeps what it is told to start from, and stays there."""

    name = "Start"

    def __init__(self):
        self.starts = {}

    def solve(self, problem, cavity, start, seed):
        self.starts[problem.client] = problem.family.moments(start)
        return start, SolverInfo(0, 0.0, True, "")


def starts(guide, x=X, program=model, **options):
    """Locations and variances that two clients start from."""
    solver = Start()
    y = (x[:, 0] > 0).to(x)
    pvi.fit(program, {"a": (x[:2], y[:2]), "b": (x[2:], y[2:])}, guide, solver=solver, rounds=1, **options)
    return solver.starts["a"], solver.starts["b"]


def test_all_clients_start_at_the_same_small_weights():
    (loc, variance), other = starts(mean_field_guide())
    torch.testing.assert_close(other, (loc, variance), rtol=0, atol=0)
    assert len(loc) == 50 * 3 + 50 + 50 + 1
    torch.testing.assert_close(variance, torch.full_like(variance, 1e-3))
    # Uniform on (-0.1, 0.1), by Kolmogorov and Smirnov; one of a thousand seeds would fail.
    assert kstest(loc.numpy(), "uniform", (-0.1, 0.2)).pvalue > 1e-3
    again, seeded, wide = (
        starts(mean_field_guide(**options))[0] for options in ({}, {"seed": 1}, {"loc_range": 0.3, "variance": 0.1})
    )
    torch.testing.assert_close(again, (loc, variance), rtol=0, atol=0)
    assert not torch.isclose(seeded[0], loc).any()
    torch.testing.assert_close(wide[0], 3 * loc)
    torch.testing.assert_close(wide[1], torch.full_like(loc, 0.1))


def test_the_start_is_the_same_in_single_precision_and_follows_the_program():
    program = partial(model, hidden=(4, 2))
    (double, _), _ = starts(mean_field_guide(program), program=program)
    (single, _), _ = starts(mean_field_guide(program), X.float(), program)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, double.float())
    assert len(double) == 4 * 3 + 4 + 2 * 4 + 2 + 2 + 1
    assert not pyro.get_param_store()


def test_fan_in_is_how_torch_starts_its_layers():
    program = partial(model, hidden=(40, 200))
    (loc, variance), (other, _) = starts(mean_field_guide(program, loc_range="fan-in"), program=program)
    torch.testing.assert_close(other, loc, rtol=0, atol=0)
    torch.testing.assert_close(variance, torch.full_like(variance, 1e-3))
    # The ranges of torch's own layers: their largest weights of many come close to them.
    layers = [torch.nn.Linear(*ends) for ends in ((3, 40), (40, 200), (200, 1))]
    sizes = [part.numel() for layer in layers for part in (layer.weight, layer.bias)]
    bounds = [bound for layer in layers for bound in [layer.in_features**-0.5] * 2]
    parts = loc.split(sizes)
    for part, bound in zip(parts, bounds, strict=True):
        assert part.abs().max() <= bound
        assert len(part) == 1 or kstest(part.numpy(), "uniform", (-bound, 2 * bound)).pvalue > 1e-3
    for part, theirs in zip(parts[2:4], (layers[1].weight, layers[1].bias), strict=True):
        torch.testing.assert_close(part.abs().max(), theirs.abs().max().double(), rtol=0.05, atol=0)
    # The same draws as with a number, stretched.
    (narrow, _), _ = starts(mean_field_guide(program, loc_range=1.0), program=program)
    for part, whole, bound in zip(parts, narrow.split(sizes), bounds, strict=True):
        torch.testing.assert_close(part, bound * whole)


@pytest.mark.parametrize(
    ("shapes", "named"),
    [
        ({"slopes": (3,)}, r"the site slopes has the shape \[3\]: give loc_range as a number"),
        ({"weights": (4, 3), "bias": (5,)}, r"the site bias has the shape \[5\]"),
        ({"weights": (4, 3), "noise": ()}, r"the site noise has the shape \[\]"),
    ],
)
def test_sites_without_a_fan_in(shapes, named):
    def program():
        for name, shape in shapes.items():
            pyro.sample(name, dist.Normal(torch.zeros(shape), 1.0).to_event(len(shape)))

    mean_field_guide(program)()
    with pytest.raises(ValueError, match=named):
        mean_field_guide(program, loc_range="fan-in")()


def test_a_range_in_other_words():
    with pytest.raises(ValueError, match="loc_range is a number or 'fan-in', not 'fan-out'"):
        mean_field_guide(loc_range="fan-out")


@pytest.mark.parametrize(
    "options",
    [{"loc_range": -0.1}, {"variance": 0.0}, {"variance": float("nan")}, {"loc_range": "fan-in", "variance": 0}],
)
def test_no_such_start(options):
    with pytest.raises(ValueError, match="loc_range must not be negative and variance positive"):
        mean_field_guide(**options)


@pytest.fixture(scope="module")
def digits():
    """Five clients with 300 handwritten digits each (8 by 8 pixels), and 297 held out."""
    x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order].float() / 16, y[order]
    clients = [(x[rows], y[rows]) for rows in torch.arange(1500).split(300)]
    return clients, {"new": (x[1500:], y[1500:])}


def fitted(digits, guide, program, executor="vectorised", **options):
    solver = SVI(**{"steps": 120, "batch_size": 100, "num_particles": 1, "local_reparameterisation": True} | options)
    return pvi.fit(program, digits[0], guide, solver=solver, rounds=3, damping=0.3, executor=executor)


@pytest.mark.slow
def test_small_weights_learn_where_the_prior_does_not(digits):
    program = partial(model, hidden=30, classes=10)
    started, prior = fitted(digits, mean_field_guide(program), program), fitted(digits, None, program)
    assert started.history[0].elbo < started.history[1].elbo < started.history[2].elbo
    good, bad = (heldout_metrics(one, digits[1], num_samples=50).loc["new"] for one in (started, prior))
    # Chance is 0.1 and -2.30 nats a row. Seen: 0.94 and -0.35 nats from small weights, 0.12 and -2.30 from the prior.
    assert good["accuracy"] > 0.85
    assert good["log_density"] > -0.6
    assert bad["accuracy"] < 0.2
    assert started.elbo > prior.elbo + 1000
    # Class probabilities, by hand.
    x = digits[1]["new"][0]
    draws = started.posterior.sample(50, torch.Generator().manual_seed(0))
    by_hand = [forward({name: value[s] for name, value in draws.items()}, x).softmax(-1) for s in range(50)]
    mean = started.predict_mean(x, num_samples=50)["y"]
    torch.testing.assert_close(mean, torch.stack(by_hand).mean(0))
    drawn = started.predict(x, num_samples=50)["y"]
    assert drawn.shape == (50, 297)
    assert set(drawn.unique().tolist()) <= set(range(10))


def test_executors_agree(digits):
    few = ([(x[:40].double(), y[:40]) for x, y in digits[0][:2]], digits[1])
    program = partial(model, hidden=(8, 6), classes=10)
    guide = mean_field_guide(program)
    one, other = (
        fitted(few, guide, program, executor, steps=20, batch_size=None) for executor in ("loop", "vectorised")
    )
    # The same draws; rounding through 60 steps.
    torch.testing.assert_close(one.posterior.natural, other.posterior.natural, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_by_name_with_settings_beside_the_data(outcome):
    options, y, _ = OUTCOMES[outcome]
    options = {"hidden": 4.0, **options}
    data = [{"x": X[:3], "y": y[:3], **options}, {"x": X[3:], "y": y[3:], **options}]
    guide = bayesian_mlp.mean_field_guide()
    result = pvi.fit("bayesian_mlp", data, guide, solver=SVI(steps=5, local_reparameterisation=True), rounds=1)
    assert result.posterior.mean["weights_1"].shape == (4, 3)
    mean = result.predict_mean(X, num_samples=10, **options)["y"]
    assert mean.shape == ((6, 4) if outcome == "classes" else (6,))
    assert torch.isfinite(mean).all()
