"""Linear layers among torch's functions, and draws of each row's pre-activations in place of draws of the weights.

A layer maps row i of its inputs to h_i = W a_i + b with independent weights W ~ N(M, S²) and b ~ N(m, s²). Every row
may have weights of its own as long as its whole h_i has the law that one draw of the weights would give it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Gaussians(NamedTuple):
    """Independent Gaussian weights in the shape of their layer; ``spread`` is one draw of them minus ``loc``."""

    loc: Tensor
    sd: Tensor
    spread: Tensor


class Layer(NamedTuple):
    """One call: ``apply(inputs, weight)`` plus ``bias``, which has an entry a feature of the outputs.

    Rows lie on axis 0 of inputs and outputs, features on ``axis``.
    """

    inputs: Tensor
    weight: Tensor
    bias: Tensor | None
    apply: Callable[[Tensor, Tensor], Tensor]
    axis: int


Draw = Callable[[Layer, Gaussians, Gaussians | None, Tensor], Tensor]
"""Pre-activations from a layer, the laws of its weights and (``None``: as it stands) bias, and normal numbers a row."""


class Plan(NamedTuple):
    """How to draw a layer's outputs, and with how many numbers a row: those of a random bias are extra."""

    draw: Draw
    num_noise: int
    num_bias_noise: int


def read_layer(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], is_weight: Callable[[Any], bool]
) -> Layer | None:
    """The layer that a call of a torch function is, ``None`` where it is none; ``is_weight`` knows random weights."""
    reader = READERS.get(function)
    try:
        layer = reader(*args, **kwargs) if reader else None
    except TypeError:
        return None  # keywords such as out=
    if layer is not None and layer.apply is torch.add and is_weight(layer.inputs):
        layer = layer._replace(inputs=layer.weight, weight=layer.inputs)
    if layer is None or not isinstance(layer.inputs, Tensor) or not is_weight(layer.weight):
        return None
    return None if is_weight(layer.inputs) else layer


def plan(layer: Layer, outputs: Tensor, rows: int) -> Plan | None:
    """How to draw ``outputs [rows, ...]`` row by row, ``None`` where rows are not on the first axis of its own."""
    inputs, weight, axis = layer.inputs, layer.weight, layer.axis
    if inputs.ndim == 0 or inputs.shape[0] != rows or outputs.shape[:1] != inputs.shape[:1]:
        return None
    if layer.apply is torch.add:
        return Plan(local_shift, weight.numel(), 0) if weight.ndim < inputs.ndim else None
    if layer.bias is not None and layer.bias.shape != (outputs.shape[axis],):
        return None
    flipped = Plan(flipout, inputs.shape[axis] + outputs.shape[axis], outputs.shape[axis])
    if axis == 1:
        return flipped if inputs.ndim == weight.ndim else None
    if not ((inputs.ndim == 2 and weight.ndim <= 2) or inputs.ndim > weight.ndim >= 2):
        return None  # batches of matrices along the rows' axis
    if outputs.numel() * inputs.shape[-1] == rows * weight.numel():
        return Plan(local_linear, outputs.numel() // rows, 0)
    return flipped


def local_linear(layer: Layer, weight: Gaussians, bias: Gaussians | None, noise: Tensor) -> Tensor:
    """h_i ~ N(M a_i + m, S² a_i² + s²), exact where every weight meets one number a row.

    Kingma, Salimans and Welling (2015), section 2.3.
    """
    mean = layer.apply(layer.inputs, weight.loc)
    variance = layer.apply(layer.inputs.square(), weight.sd.square())
    if bias is not None:
        mean, variance = mean + bias.loc, variance + bias.sd.square()
    elif layer.bias is not None:
        mean = mean + layer.bias
    # A row of zeros has no variance, where the square root has no derivative.
    sd = variance.clamp(min=torch.finfo(variance.dtype).tiny).sqrt()
    return mean + sd * noise.reshape(mean.shape)


def flipout(layer: Layer, weight: Gaussians, bias: Gaussians | None, noise: Tensor) -> Tensor:
    """h_i = M a_i + r_i ∘ (ΔW (s_i ∘ a_i)) + b_i with random signs r, s a row and one draw M + ΔW for all rows.

    Wen, Vicol, Ba, Tran and Grosse (2018), equation 4. ΔW_i = r_i s_iᵀ ∘ ΔW has the law of ΔW, so that all of a row's
    pre-activations keep their joint law. Drawing each of them from its own marginal instead, as is often done for
    convolutions, makes the pixels of a row independent of each other, which biases whatever is nonlinear in several.
    """
    mean = layer.apply(layer.inputs, weight.loc)
    numbers = [layer.inputs.shape[layer.axis], mean.shape[layer.axis]]
    into, out, rest = noise.split([*numbers, noise.shape[-1] - sum(numbers)], -1)
    change = layer.apply(layer.inputs * _along(_signs(into), layer.inputs, layer.axis), weight.spread)
    outputs = mean + change * _along(_signs(out), mean, layer.axis)
    if bias is not None:
        return outputs + _along(bias.loc + bias.sd * rest, mean, layer.axis)
    return outputs if layer.bias is None else outputs + _along(layer.bias[None], mean, layer.axis)


def local_shift(layer: Layer, weight: Gaussians, bias: Gaussians | None, noise: Tensor) -> Tensor:
    """b_i ~ N(m, s²) added to row i."""
    rows, shape = len(noise), weight.loc.shape
    ones = [1] * (layer.inputs.ndim - 1 - len(shape))
    return layer.inputs + (weight.loc + weight.sd * noise.reshape(rows, *shape)).reshape(rows, *ones, *shape)


def _signs(noise: Tensor) -> Tensor:
    return torch.where(noise < 0, -torch.ones_like(noise), torch.ones_like(noise))


def _along(numbers: Tensor, like: Tensor, axis: int) -> Tensor:
    """``[rows, features]`` with the features on ``axis`` of tensors such as ``like``."""
    shape = [1] * like.ndim
    shape[0], shape[axis] = numbers.shape
    return numbers.reshape(shape)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Layer:
    return Layer(input, weight, bias, functional.linear, -1)


def _matmul(input: Tensor, other: Tensor) -> Layer:
    return Layer(input, other, None, torch.matmul, -1)


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor) -> Layer:
    return Layer(mat1, mat2, input, torch.matmul, -1)


def _add(input: Tensor, other: Tensor) -> Layer:
    return Layer(input, other, None, torch.add, -1)


def _convolution(function: Callable[..., Tensor]) -> Callable[..., Layer]:
    def read(input: Tensor, weight: Tensor, bias: Tensor | None = None, *geometry: Any, **named: Any) -> Layer:
        return Layer(input, weight, bias, lambda a, w: function(a, w, None, *geometry, **named), 1)

    return read


READERS: dict[Any, Callable[..., Layer]] = {
    functional.linear: _linear,
    **dict.fromkeys(
        [torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.mv, Tensor.mv], _matmul
    ),
    **dict.fromkeys([torch.addmm, Tensor.addmm], _addmm),
    **dict.fromkeys([torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__], _add),
    **{function: _convolution(function) for function in (torch.conv1d, torch.conv2d, torch.conv3d)},
}
