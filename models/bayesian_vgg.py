"""Bayesian convolutional network for images, after VGG: 3 x 3 convolutions, max-pooling, and one linear layer.

kernel_l ~ Normal(0, prior_scale)     one for each output, input and pixel of the 3 x 3 patch of convolution l
bias_l   ~ Normal(0, prior_scale)     one for each output of convolution l
weights  ~ Normal(0, prior_scale)     one for each class and feature
bias     ~ Normal(0, prior_scale)     one for each class
h_0 = x_i,  h_l = relu(kernel_l * h_{l-1} + bias_l), halved by max-pooling where the layers say "M"
f   = weights h_L + bias
y_i      ~ Categorical(logits = f)    labels 0, 1, ..., classes - 1

Under the prior the outputs are large and noisy: start local solves at ``bayesian_mlp.mean_field_guide(program)``.
"""

from collections.abc import Sequence

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn import functional

LAYERS = (16, "M", 32, "M", 64, "M", 128, "M", 128, "M")
"""For 32 x 32 images: after five halvings 128 features are left."""


def model(
    x: Tensor,
    y: Tensor | None = None,
    layers: Sequence[float | str] = LAYERS,
    classes: float = 10,
    prior_scale: float = 1.0,
) -> Tensor:
    """Images ``x [n, channels, height, width]`` and labels ``y [n]``; returns labels ``[n]``.

    ``layers`` are the output channels of each convolution (its images padded by a pixel, so that they keep their
    size), and "M" for max-pooling of 2 x 2 pixels. Sites: ``kernel_1 [out, channels, 3, 3]``, ``bias_1 [out]``,
    ``kernel_2``, ..., ``weights [classes, features]``, ``bias [classes]``. Each layer is one call of
    ``functional.conv2d`` or ``functional.linear``, which local reparameterisation finds.

    Raises ``ValueError`` for inputs that are no images, for numbers of channels or classes that are not whole, and
    where "M" would halve a height or width that is odd.
    """
    if x.ndim != 4:
        raise ValueError(f"x must have shape [images, channels, height, width], got {list(x.shape)}")
    outputs = _whole("classes", classes, least=2)
    h = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    scale, convolutions = h.new_tensor(prior_scale), 0
    for layer in layers:
        if layer == "M":
            h = functional.max_pool2d(_even(h, x), 2)
            continue
        convolutions += 1
        zeros = h.new_zeros(_whole("each of layers ('M' apart)", layer), h.shape[1], 3, 3)
        kernel = pyro.sample(f"kernel_{convolutions}", dist.Normal(zeros, scale).to_event(4))
        bias = pyro.sample(f"bias_{convolutions}", dist.Normal(zeros[:, 0, 0, 0], scale).to_event(1))
        h = torch.relu(functional.conv2d(h, kernel, bias, padding=1))
    h = h.flatten(1)
    zeros = h.new_zeros(outputs, h.shape[1])
    weights = pyro.sample("weights", dist.Normal(zeros, scale).to_event(2))
    bias = pyro.sample("bias", dist.Normal(zeros[:, 0], scale).to_event(1))
    logits = functional.linear(h, weights, bias)
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def _even(h: Tensor, x: Tensor) -> Tensor:
    """``h`` itself, if both its height and its width can be halved; max-pooling would drop an odd line of pixels."""
    height, width = h.shape[2:]
    if height % 2 or width % 2:
        raise ValueError(
            f"'M' halves height and width: images of {x.shape[2]} x {x.shape[3]} come to one with {height} x {width}; "
            "pad them, or give layers with fewer 'M'"
        )
    return h


def _whole(name: str, value: float | str, least: int = 1) -> int:
    """A whole number, which command lines give as a float; raises ``ValueError`` for others."""
    if isinstance(value, str) or value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value}")
    return int(value)
