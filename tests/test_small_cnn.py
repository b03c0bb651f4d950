"""The small convolutional network: its density as torch's own layers give it, its size, bad images, a fit."""

from functools import partial

import pytest
import torch
from pyro import poutine
from torch import nn
from toy_programs import normal

import pvi
from pvi.models.bayesian_mlp import mean_field_guide
from pvi.models.small_cnn import model

Y = torch.tensor([0, 2, 1, 2, 0, 1])
TINY = {"channels": (2, 3), "hidden": 4, "classes": 3, "patch": 3}


def layer(kind, weight, bias, *arguments):
    made = kind(*arguments, dtype=weight.dtype)
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def plain(values, convolutions):
    """The network as torch writes it, with the weights of one draw."""
    parts = []
    for place in range(1, convolutions + 1):
        kernel = values[f"kernel_{place}"]
        parts += [
            layer(nn.Conv2d, kernel, values[f"bias_{place}"], kernel.shape[1], kernel.shape[0], kernel.shape[-1]),
            nn.ReLU(), nn.MaxPool2d(2),
        ]  # fmt: skip
    first, second = (
        layer(nn.Linear, values[f"weights_{k}"], values[f"dense_bias_{k}"], *values[f"weights_{k}"].T.shape)
        for k in (1, 2)
    )
    return nn.Sequential(*parts, nn.Flatten(), first, nn.ReLU(), second)


@pytest.mark.parametrize(
    ("options", "shape"),
    [(TINY, (1, 10, 10)), ({**TINY, "channels": (4,)}, (3, 4, 6)), ({"hidden": 20}, (3, 32, 32))],
)
def test_density_of_the_same_network_in_torch(options, shape):
    x = normal(6, *shape, seed=1)
    trace = poutine.trace(model).get_trace(x, Y, prior_scale=0.5, **options)
    values = {name: trace.nodes[name]["value"] for name in trace.stochastic_nodes if name != "rows"}
    with torch.no_grad():
        logits = plain(values, len(options.get("channels", (32, 64))))(x)
    prior = sum(torch.distributions.Normal(0.0, 0.5).log_prob(value).sum() for value in values.values())
    torch.testing.assert_close(trace.log_prob_sum(), prior - nn.functional.cross_entropy(logits, Y, reduction="sum"))


def test_the_default_network_is_the_published_one():
    """Two convolutions of 5 x 5 with 32 and 64 outputs, then 1600-512-10."""
    trace = poutine.trace(model).get_trace(torch.zeros(2, 3, 32, 32))
    shapes = {name: list(trace.nodes[name]["value"].shape) for name in trace.stochastic_nodes if name != "rows"}
    assert shapes == {
        "kernel_1": [32, 3, 5, 5], "bias_1": [32], "kernel_2": [64, 32, 5, 5], "bias_2": [64],
        "weights_1": [512, 1600], "dense_bias_1": [512], "weights_2": [10, 512], "dense_bias_2": [10], "y": [2],
    }  # fmt: skip


def test_whole_pixels_and_numbers_from_command_lines():
    pixels = torch.randint(0, 256, (5, 1, 4, 4))
    labels = model(pixels, channels=(2.0,), hidden=3.0, classes=3.0, patch=3.0)
    assert labels.shape == (5,)
    assert set(labels.tolist()) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": normal(3, 10, 10)}, r"x must have shape \[images, channels, height, width\], got \[3, 10, 10\]"),
        ({"channels": (2.5,)}, "each of channels must be a whole number, at least 1, got 2.5"),
        ({"hidden": 0}, "hidden must be a whole number, at least 1, got 0"),
        ({"classes": 1}, "classes must be a whole number, at least 2, got 1"),
        ({"x": normal(2, 1, 9, 10)}, "convolution 1 of 3 x 3 leaves 7 x 8 of 9 x 10, which max-pooling does not halve"),
        ({"channels": (2, 2, 2)}, "convolution 3 of 3 x 3 leaves 0 x 0 of 1 x 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        model(**{"x": normal(6, 1, 10, 10), **TINY, **arguments})


def test_learns():
    """Bright upper halves, bright lower halves, and neither: 20 at each of two clients."""
    y = torch.arange(40) % 3
    x = 0.5 * normal(40, 1, 10, 10, seed=2)
    x[y == 0, :, :5] += 2
    x[y == 1, :, 5:] += 2
    program = partial(model, **TINY)
    guide = mean_field_guide(program, loc_range=0.3)
    fedavg = pvi.FedAvg(epochs=20, batch_size=10, learning_rate=0.01, optimiser="adam")
    result = pvi.fit(program, [(x[:20], y[:20]), (x[20:], y[20:])], guide, algorithm=fedavg, rounds=3)
    # A third by chance.
    assert (result.predict_mean(x, num_samples=1)["y"].argmax(1) == y).double().mean() > 0.8
