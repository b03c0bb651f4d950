"""Sums of squared gradients of rows, the diagonal of the empirical Fisher information, at the price of one gradient.

A linear layer h_j = W a_j where every weight meets one number a row has the row gradients δ_j a_jᵀ with
δ_j = ∂ log p_j / ∂h_j, so that their squares sum to Σ_j δ_j² (a_j²)ᵀ: the layer's own pull-back at squared inputs and
squared δ. The pass backward that gives the gradient brings every δ along. (Goodfellow, 2015, "Efficient per-example
gradient computations", for norms; Dangel, Kunstner and Hennig, 2020, BackPACK.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.handlers import Followed, Following
from pvi.programs.layers import flipout, local_shift, read_layer
from pvi.programs.local_reparameterisation import Call, Layers, by_site
from pvi.programs.program import Program
from pvi.programs.row_gradients import row_values
from pvi.programs.weighted import weighted_log_likelihood


class Squares(NamedTuple):
    """Σ_j w_j log p_j in nats ``[]``, its gradient ``[d]``, and Σ_j w_j (∇ log p_j)² ``[d]``."""

    value: Tensor
    gradient: Tensor
    squares: Tensor


def covers(program: Program, layers: Layers | None) -> bool:
    """Whether every coordinate enters one of the layers and nothing else."""
    if layers is None or set(layers.followed) != set(program.coordinates.names):
        return False
    # A call's second site is its bias, which is left alone where it has other uses.
    return all(call.draw is not None and call.has_local_bias == (len(call.sites) > 1) for call in layers.calls)


def squared_gradients(
    program: Program, layers: Layers | None, x: Tensor, batch: Batch, weights: Tensor | None = None
) -> Squares:
    """The log likelihood at x ``[d]``, its gradient, and the sum of its rows' squared gradients.

    One pass forward and one backward where ``layers`` of :func:`~pvi.programs.find_layers.find_layers` cover the
    program (see :func:`covers`); that function has also seen that rows do not mix. Without, by
    :func:`~pvi.programs.row_gradients.row_gradients`, which takes n gradients in memory and a program that
    :func:`~pvi.programs.row_gradients.check_rows` lets pass. ``weights [n]`` are 0 for padding and 1 otherwise. Safe
    under ``vmap`` and graph capture.

    Raises :class:`~pvi.programs.errors.ProgramError` where the model uses its weights otherwise than when it was
    examined.
    """
    if layers is None or not covers(program, layers):
        values, gradients = row_values(program, x, batch, weights)
        return Squares(values.sum(), gradients.sum(0), gradients.square().sum(0))

    def total(x: Tensor, slots: Tensor) -> Tensor:
        with _squaring(program, layers, slots, batch.num_rows):
            return weighted_log_likelihood(program, x, batch, weights)

    (gradient, squares), value = torch.func.grad_and_value(total, argnums=(0, 1))(x, torch.zeros_like(x))
    return Squares(value, gradient, squares)


@contextmanager
def _squaring(program: Program, layers: Layers, slots: Tensor, rows: int) -> Iterator[None]:
    """The gradient with respect to ``slots [d]``, which changes no value, is the sum of the rows' squared gradients."""
    upcoming = iter(layers.calls)
    changed = ProgramError(
        f"the model uses the values of {list(layers.sites)} otherwise than when it was examined: what it does with "
        "its weights must not depend on the data; take the gradients row by row"
    )

    def use(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], found: list[Followed]) -> Any:
        call = next(upcoming, None)
        if call is None or sorted(call.sites) != sorted(one.site for one in found):
            raise changed
        layer = read_layer(function, args, kwargs, lambda value: any(value is one.value for one in found))
        if layer is None or layer.inputs.shape != (rows, *call.shape):
            raise changed
        slot = {id(one.value): one.parts[0] for one in found}
        bias = slot[id(layer.bias)] if call.has_local_bias else None
        outputs = function(*args, **kwargs)
        pull = _pull(call, layer.apply, _patches(function, args, kwargs))
        return _Tap.apply(outputs, layer.inputs, slot[id(layer.weight)], bias, pull, layer.axis)

    with Following(by_site(program, layers.followed, slots), use):
        yield
    if next(upcoming, None) is not None:
        raise changed


Pull = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(inputs, anything in the weight's shape, δ) -> squares of the rows' gradients, summed over rows, in that shape."""


class _Tap(torch.autograd.Function):
    """The identity of a layer's outputs; its pass backward leaves the squares at the slots of weight and bias."""

    generate_vmap_rule = True

    @staticmethod
    def forward(outputs: Tensor, inputs: Tensor, weight: Tensor, bias: Tensor | None, pull: Pull, axis: int) -> Tensor:
        return outputs.view_as(outputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, layer_inputs, weight, bias, ctx.pull, ctx.axis = inputs
        ctx.has_bias = bias is not None
        ctx.save_for_backward(layer_inputs, weight)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> Any:
        inputs, weight = ctx.saved_tensors
        bias = _by_feature(deltas[0], ctx.axis).square().sum(0) if ctx.has_bias else None
        return deltas[0], None, ctx.pull(inputs, weight, deltas[0]), bias, None, None


def _pull(
    call: Call, apply: Callable[[Tensor, Tensor], Tensor], patches: Callable[[Tensor, Tensor], Tensor] | None
) -> Pull:
    def pulled(inputs: Tensor, weight: Tensor, delta: Tensor) -> Tensor:
        found: Tensor = torch.func.vjp(lambda weight: apply(inputs, weight), weight)[1](delta)[0]
        return found

    def linear(inputs: Tensor, weight: Tensor, delta: Tensor) -> Tensor:
        return pulled(inputs.square(), weight, delta.square())

    def shift(inputs: Tensor, weight: Tensor, delta: Tensor) -> Tensor:
        return _by_row(delta, weight).square().sum(0)

    def several(inputs: Tensor, weight: Tensor, delta: Tensor) -> Tensor:
        # A weight meets several numbers a row: each row's products are summed before they are squared.
        if patches is not None:
            rows = delta.flatten(2) @ patches(inputs, weight).mT
            return rows.square().sum(0).reshape(weight.shape)
        rows = torch.func.vmap(lambda row, own: pulled(row[None], weight, own[None]))(inputs, delta)
        return rows.square().sum(0)

    if call.draw is local_shift:
        return shift
    return several if call.draw is flipout else linear


def _patches(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[Tensor, Tensor], Tensor] | None:
    """For a convolution of images (inputs, weight) -> ``[n, weights of a feature, pixels]``: what its weights meet.

    The gradients of its rows are then products of matrices, whose squares a compiler sums as it goes: three times as
    fast as the convolutions with a group a row that ``vmap`` makes of them.
    """

    def geometry(
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> tuple[Any, Any, Any, int]:
        return stride, padding, dilation, groups

    if function is not torch.conv2d:
        return None
    stride, padding, dilation, groups = geometry(*args, **kwargs)
    if groups != 1 or isinstance(padding, str):
        return None
    return lambda inputs, weight: functional.unfold(inputs, weight.shape[2:], dilation, padding, stride)


def _by_feature(delta: Tensor, axis: int) -> Tensor:
    """δ summed over all axes but that of rows and that of features: ``[n, features]``."""
    moved = delta.movedim(axis, 1)
    return moved.flatten(2).sum(2) if moved.ndim > 2 else moved


def _by_row(delta: Tensor, weight: Tensor) -> Tensor:
    """δ ``[n, ...]`` summed over the axes along which ``weight`` is spread: ``[n, *weight.shape]``."""
    between = delta.ndim - 1 - weight.ndim
    if between:
        delta = delta.flatten(1, between).sum(1)
    spread = [axis for axis, length in enumerate(weight.shape, 1) if length == 1 and delta.shape[axis] != 1]
    return delta.sum(spread, keepdim=True) if spread else delta
