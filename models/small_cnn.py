"""Bayesian convolutional network for images, small: 5 x 5 convolutions with max-pooling, and one hidden linear layer.

kernel_l  ~ Normal(0, prior_scale)    one for each output, input and pixel of the patch of convolution l
bias_l    ~ Normal(0, prior_scale)    one for each output of convolution l
weights_1 ~ Normal(0, prior_scale)    one for each hidden unit and feature
weights_2 ~ Normal(0, prior_scale)    one for each class and hidden unit
dense_bias_1, dense_bias_2 ~ Normal(0, prior_scale)
h_0 = x_i,  h_l = maxpool(relu(kernel_l * h_{l-1} + bias_l))
f   = weights_2 relu(weights_1 h_L + dense_bias_1) + dense_bias_2
y_i       ~ Categorical(logits = f)   labels 0, 1, ..., classes - 1

The convolutions are not padded: 32 x 32 images come to 64 x 5 x 5 = 1600 features. Under the prior the outputs are
large and noisy: start local solves at ``bayesian_mlp.mean_field_guide(program, loc_range="fan-in")``.
"""

from collections.abc import Sequence

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn import functional

POOL = 2


def model(
    x: Tensor,
    y: Tensor | None = None,
    channels: Sequence[float] = (32, 64),
    hidden: float = 512,
    classes: float = 10,
    patch: float = 5,
    prior_scale: float = 1.0,
) -> Tensor:
    """Images ``x [n, channels, height, width]`` and labels ``y [n]``; returns labels ``[n]``.

    ``channels`` are the outputs of each convolution, ``patch`` the height and width of its kernels, ``hidden`` the
    units of the linear layer before the classes. Sites: ``kernel_1 [out, channels, patch, patch]``, ``bias_1 [out]``,
    ``kernel_2``, ..., ``weights_1 [hidden, features]``, ``dense_bias_1 [hidden]``, ``weights_2 [classes, hidden]``,
    ``dense_bias_2 [classes]``. Each layer is one call of ``functional.conv2d`` or ``functional.linear``, which local
    reparameterisation finds.

    Raises ``ValueError`` for inputs that are no images, for numbers that are not whole, and where max-pooling would
    drop a line of pixels or an image gets smaller than a patch.
    """
    if x.ndim != 4:
        raise ValueError(f"x must have shape [images, channels, height, width], got {list(x.shape)}")
    side, outputs, units = _whole("patch", patch), _whole("classes", classes, least=2), _whole("hidden", hidden)
    h = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    scale = h.new_tensor(prior_scale)
    for place, width in enumerate(channels, 1):
        zeros = h.new_zeros(_whole("each of channels", width), h.shape[1], side, side)
        kernel = pyro.sample(f"kernel_{place}", dist.Normal(zeros, scale).to_event(4))
        bias = pyro.sample(f"bias_{place}", dist.Normal(zeros[:, 0, 0, 0], scale).to_event(1))
        h = functional.max_pool2d(torch.relu(functional.conv2d(_fitting(h, side, place), kernel, bias)), POOL)
    h = h.flatten(1)
    for layer, width in enumerate((units, outputs), 1):
        zeros = h.new_zeros(width, h.shape[1])
        weights = pyro.sample(f"weights_{layer}", dist.Normal(zeros, scale).to_event(2))
        bias = pyro.sample(f"dense_bias_{layer}", dist.Normal(zeros[:, 0], scale).to_event(1))
        h = functional.linear(h if layer == 1 else torch.relu(h), weights, bias)
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Categorical(logits=h), obs=y)


def _fitting(h: Tensor, side: int, place: int) -> Tensor:
    """``h`` itself, if what a convolution leaves of it can be halved; max-pooling would drop an odd line of pixels."""
    height, width = (max(0, pixels - side + 1) for pixels in h.shape[2:])
    if min(height, width) < POOL or height % POOL or width % POOL:
        raise ValueError(
            f"convolution {place} of {side} x {side} leaves {height} x {width} of {h.shape[2]} x {h.shape[3]}, which "
            "max-pooling does not halve: pad or crop the images, or give another patch or fewer channels"
        )
    return h


def _whole(name: str, value: float, least: int = 1) -> int:
    """A whole number, which command lines give as a float; raises ``ValueError`` for others."""
    if value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value}")
    return int(value)
