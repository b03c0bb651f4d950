"""Bayesian neural network: a binary, categorical or real outcome through fully connected layers, any depth.

weights_l ~ Normal(0, prior_scale)    one for each input and output of layer l
bias_l    ~ Normal(0, prior_scale)    one for each output of layer l
h_0 = x_i,  h_l = activation(weights_l h_{l-1} + bias_l),  f = weights_L h_{L-1} + bias_L
y_i       ~ Bernoulli(logits = f)             classes = 2
y_i       ~ Categorical(logits = f)           classes > 2, labels 0, 1, ..., classes - 1
y_i       ~ Normal(f, noise_scale)            noise_scale given

Under the prior, the outputs of wide networks are large and noisy: local solves that start there first learn to be
silent. Start them at :func:`mean_field_guide`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor
from torch.nn import functional


def model(
    x: Tensor,
    y: Tensor | None = None,
    hidden: float | Sequence[int] = 50,
    depth: float = 1,
    classes: float = 2,
    noise_scale: float | None = None,
    prior_scale: float = 1.0,
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> Tensor:
    """Features ``x [n, d]`` and outcomes ``y [n]``; returns outcomes ``[n]``.

    ``hidden`` units in each of ``depth`` hidden layers, or a width a layer such as ``(200, 100)``; with no layer it is
    a generalised linear model. Sites: ``weights_1 [hidden, d]``, ``bias_1 [hidden]``, ``weights_2``, .... Each layer is
    one call of ``functional.linear``, which local reparameterisation finds.

    Raises ``ValueError`` for inputs that are no table, for numbers of units, layers or classes that are not whole, and
    for an outcome that is both real and of several classes.
    """
    if x.ndim != 2:
        raise ValueError(f"x must have shape [rows, features], got {list(x.shape)}")
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    outputs = 1 if noise_scale is not None or classes == 2 else whole("classes", classes, least=2)
    if noise_scale is not None and classes != 2:
        raise ValueError(f"an outcome is real (noise_scale={noise_scale}) or one of {classes} classes, not both")
    h, scale = x, x.new_tensor(prior_scale)
    for layer, width in enumerate([*hidden_widths(hidden, depth), outputs], 1):
        zeros = x.new_zeros(width, h.shape[-1])
        weights = pyro.sample(f"weights_{layer}", dist.Normal(zeros, scale).to_event(2))
        bias = pyro.sample(f"bias_{layer}", dist.Normal(zeros[:, 0], scale).to_event(1))
        h = functional.linear(h if layer == 1 else activation(h), weights, bias)
    with pyro.plate("rows", x.shape[0]):
        if outputs > 1:
            return pyro.sample("y", dist.Categorical(logits=h), obs=y)
        observed = None if y is None else y.to(x)  # counts and labels are often integers
        if noise_scale is None:
            return pyro.sample("y", dist.Bernoulli(logits=h[:, 0]), obs=observed)
        return pyro.sample("y", dist.Normal(h[:, 0], x.new_tensor(noise_scale)), obs=observed)


def mean_field_guide(
    program: Callable[..., Any] = model,
    *,
    loc_range: float | Literal["fan-in"] = 0.1,
    variance: float = 1e-3,
    seed: int = 0,
) -> Callable[..., None]:
    """A guide for :func:`pvi.fit`: mean field, solves from the prior start at loc ~ Uniform(-loc_range, loc_range).

    The start's variance is that of every weight. ``loc_range="fan-in"`` is 1 / sqrt(fan-in) for each layer's weights
    and bias, as torch's own layers start: the fan-in is the product of all dimensions of the weights ``[out, ...]`` but
    the first, and the bias ``[out]`` is the site after them. Locations are drawn with the seed and are the same at all
    clients, so that all break the symmetry of the hidden units alike. ``program`` is :func:`model` with its settings,
    such as ``functools.partial(model, classes=10)``, or another one whose latents are real and shared. The guide is of
    numbers, not of parameters: it says where to start, and what is learned belongs to the result.

    Raises ``ValueError`` for a negative range, a variance that is not positive, and, where the guide is called, for a
    fan-in of sites that are neither weights nor a bias after them.
    """
    if isinstance(loc_range, str) and loc_range != "fan-in":
        raise ValueError(f"loc_range is a number or 'fan-in', not {loc_range!r}")
    if (not isinstance(loc_range, str) and not loc_range >= 0) or not variance > 0:
        raise ValueError(f"loc_range must not be negative and variance positive, got {loc_range} and {variance}")

    def guide(*data: Any, **named: Any) -> None:
        with poutine.block():
            nodes = poutine.trace(program).get_trace(*data, **named).nodes
        generator = torch.Generator().manual_seed(seed)
        weights = torch.Size()  # the shape of the last site with inputs and outputs
        for name, node in nodes.items():
            if node["type"] != "sample" or node["is_observed"] or not node["fn"].has_rsample:
                continue  # observations, and plates, which are samples of indices
            shape = node["value"].shape
            weights = shape if len(shape) > 1 else weights
            bound = loc_range if not isinstance(loc_range, str) else fan_in(name, shape, weights) ** -0.5
            # Drawn on the CPU in double precision: the same numbers on every device, in every dtype.
            loc = bound * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)
            pyro.sample(name, dist.Normal(loc.to(node["value"]), variance**0.5).to_event(len(shape)))

    return guide


def fan_in(name: str, shape: torch.Size, weights: torch.Size) -> int:
    """The inputs of a unit, for its ``weights [out, ...]`` and for the bias ``[out]`` after them.

    Raises ``ValueError`` for a site of another shape.
    """
    if not weights or shape not in (weights, weights[:1]):
        raise ValueError(
            f"'fan-in' is for weights [out, ...] and a bias [out] after them; the site {name} has the shape "
            f"{list(shape)}: give loc_range as a number"
        )
    return weights[1:].numel()


def hidden_widths(hidden: float | Sequence[int], depth: float = 1) -> list[int]:
    """The units of each hidden layer; raises ``ValueError`` where they are no whole numbers."""
    if isinstance(hidden, int | float):
        return [whole("hidden", hidden)] * whole("depth", depth, least=0)
    if depth != 1:
        raise ValueError(f"hidden={tuple(hidden)} has a width a layer: leave depth={depth} out")
    return [whole("hidden", width) for width in hidden]


def whole(name: str, value: float, least: int = 1) -> int:
    """A whole number, which command lines give as a float; raises ``ValueError`` for others."""
    if value != int(value) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value}")
    return int(value)
