"""The bundled convolutional network: its density as torch's own layers give it, bad images, fits, both executors."""

from functools import partial

import pytest
import torch
from pyro import poutine
from torch import nn
from toy_programs import normal

import pvi
from pvi.models.bayesian_mlp import mean_field_guide
from pvi.models.bayesian_vgg import LAYERS, model
from pvi.solvers import SVI

Y = torch.tensor([0, 2, 1, 2, 0, 1])
TINY = (2, "M", 3, "M")
SMALL = partial(model, layers=TINY, classes=3)


def images(n=6, channels=1, side=4, seed=0):
    return normal(n, channels, side, side, seed=seed)


def plain(values, layers):
    """The network as torch writes it, with the weights of one draw."""
    parts, place = [], 0
    for layer in layers:
        if layer == "M":
            parts.append(nn.MaxPool2d(2))
            continue
        place += 1
        kernel = values[f"kernel_{place}"]
        convolution = nn.Conv2d(kernel.shape[1], layer, 3, padding=1, dtype=kernel.dtype)
        convolution.load_state_dict({"weight": kernel, "bias": values[f"bias_{place}"]})
        parts += [convolution, nn.ReLU()]
    linear = nn.Linear(*values["weights"].T.shape, dtype=values["weights"].dtype)
    linear.load_state_dict({"weight": values["weights"], "bias": values["bias"]})
    return nn.Sequential(*parts, nn.Flatten(), linear)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [(TINY, (1, 4, 4)), ((4,), (3, 5, 3)), ((2, 5, "M"), (2, 2, 6)), ((), (1, 2, 2)), (LAYERS, (3, 32, 32))],
)
def test_density_of_the_same_network_in_torch(layers, shape):
    x = normal(6, *shape, seed=1)
    trace = poutine.trace(model).get_trace(x, Y, layers=layers, classes=4, prior_scale=0.5)
    values = {name: trace.nodes[name]["value"] for name in trace.stochastic_nodes if name != "rows"}
    with torch.no_grad():
        logits = plain(values, layers)(x)
    prior = sum(torch.distributions.Normal(0.0, 0.5).log_prob(value).sum() for value in values.values())
    torch.testing.assert_close(trace.log_prob_sum(), prior - nn.functional.cross_entropy(logits, Y, reduction="sum"))


def test_the_default_network_is_that_of_pfedbayes():
    trace = poutine.trace(model).get_trace(torch.zeros(2, 3, 32, 32))
    shapes = {name: list(trace.nodes[name]["value"].shape) for name in trace.stochastic_nodes if name != "rows"}
    kernels = [[16, 3, 3, 3], [32, 16, 3, 3], [64, 32, 3, 3], [128, 64, 3, 3], [128, 128, 3, 3]]
    expected = {f"kernel_{place}": shape for place, shape in enumerate(kernels, 1)}
    expected |= {f"bias_{place}": shape[:1] for place, shape in enumerate(kernels, 1)}
    assert shapes == expected | {"weights": [10, 128], "bias": [10], "y": [2]}


def test_whole_pixels_and_numbers_from_command_lines():
    labels = model(torch.randint(0, 256, (5, 1, 4, 4)), layers=(2.0, "M"), classes=3.0)
    assert labels.shape == (5,)
    assert set(labels.tolist()) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": images()[0]}, r"x must have shape \[images, channels, height, width\], got \[1, 4, 4\]"),
        ({"layers": (2.5,)}, r"each of layers \('M' apart\) must be a whole number, at least 1, got 2.5"),
        ({"layers": (0,)}, "must be a whole number, at least 1, got 0"),
        ({"layers": (2, "m")}, "must be a whole number, at least 1, got m"),
        ({"layers": (2, "M", "M", "M")}, "images of 4 x 4 come to one with 1 x 1; pad them, or .* fewer 'M'"),
        ({"x": normal(2, 1, 4, 6), "layers": ("M", "M")}, "images of 4 x 6 come to one with 2 x 3"),
        ({"classes": 1}, "classes must be a whole number, at least 2, got 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        model(**{"x": images(), "layers": TINY, **arguments})


def clients():
    """Bright upper halves, bright lower halves, and neither: 20 at each of two clients."""
    y = torch.arange(40) % 3
    x = 0.5 * images(40)
    x[y == 0, :, :2] += 2
    x[y == 1, :, 2:] += 2
    return [(x[:20], y[:20]), (x[20:], y[20:])]


def fitted(executor, program=SMALL, **options):
    solver = SVI(steps=20, num_particles=1, **options)
    guide = mean_field_guide(program, loc_range="fan-in")
    return pvi.fit(program, clients(), guide, solver=solver, rounds=2, damping=0.5, executor=executor)


@pytest.mark.parametrize("local", [False, True])
def test_executors_agree(local):
    one, other = (fitted(executor, local_reparameterisation=local) for executor in ("loop", "vectorised"))
    # The same draws; rounding through 40 steps.
    torch.testing.assert_close(one.posterior.natural, other.posterior.natural, rtol=1e-8, atol=1e-8)
    assert one.posterior.mean["kernel_2"].shape == (3, 2, 3, 3)


def test_learns_and_predicts_by_name():
    options = {"layers": (4, "M"), "classes": 3}
    data = [{"x": x, "y": y, **options} for x, y in clients()]
    guide = mean_field_guide(model, loc_range="fan-in")
    result = pvi.fit("bayesian_vgg", data, guide, solver=SVI(steps=150), rounds=3, damping=0.5)
    x, y = (torch.cat(parts) for parts in zip(*clients(), strict=True))
    probabilities = result.predict_mean(x, num_samples=50, **options)["y"]
    assert probabilities.shape == (40, 3)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(40).double())
    # A third by chance.
    assert (probabilities.argmax(1) == y).double().mean() > 0.8


def test_starts_within_torch_s_bounds():
    trace = poutine.trace(mean_field_guide(loc_range="fan-in", program=SMALL)).get_trace(images(), Y)
    bounds = {"kernel_1": 9, "bias_1": 9, "kernel_2": 18, "bias_2": 18, "weights": 3, "bias": 3}
    assert set(trace.stochastic_nodes) == set(bounds)
    for name, inputs in bounds.items():
        loc = trace.nodes[name]["fn"].base_dist.loc
        assert loc.abs().max() <= inputs**-0.5
        assert loc.numel() < 18 or loc.abs().max() > 0.8 * inputs**-0.5  # one of 18: all below with odds of 2 %
