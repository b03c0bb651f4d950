"""The small convolutional network of all clients by hand: grouped convolutions, a group a client."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

FIRST, SECOND, WIDTH = 8, 16, 3
"""Channels of the two convolutions, and the width of their kernels."""


class Layers(NamedTuple):
    """Views of θ ``[M, 1, size]``: kernels ``[M * channels, inputs, 3, 3]``, their biases, and the linear layer."""

    k1: Tensor
    c1: Tensor
    k2: Tensor
    c2: Tensor
    w: Tensor
    b: Tensor


def layers(theta: Tensor, side: int, classes: int) -> Layers:
    """The views, in the order of the model's sites."""
    last = SECOND * ((side - 2) // 2 - 2) ** 2
    sizes = [FIRST * WIDTH**2, FIRST, SECOND * FIRST * WIDTH**2, SECOND, last * classes, classes]
    k1, c1, k2, c2, w, b = theta[:, 0].split(sizes, 1)
    return Layers(
        k1.reshape(-1, 1, WIDTH, WIDTH),
        c1.flatten(),
        k2.reshape(-1, FIRST, WIDTH, WIDTH),
        c2.flatten(),
        w.unflatten(1, (last, classes)),
        b[:, None],
    )


def log_likelihood(theta: Tensor, x: Tensor, y: Tensor, side: int, classes: int) -> Tensor:
    """Σ_m log p(y_m | θ_m) in nats; images ``[M, b, 1, side, side]`` become channels ``[b, M, side, side]``."""
    parts, clients = layers(theta, side, classes), len(theta)
    first = F.conv2d(x.squeeze(2).transpose(0, 1), parts.k1, parts.c1, groups=clients).relu()
    second = F.conv2d(F.max_pool2d(first, 2), parts.k2, parts.c2, groups=clients).relu()
    hidden = second.unflatten(1, (clients, SECOND)).transpose(0, 1).flatten(2)
    logits = torch.baddbmm(parts.b, hidden, parts.w)
    return -F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")


def gradient(theta: Tensor, x: Tensor, y: Tensor, side: int, classes: int) -> Tensor:
    """Back through the layers one by one, with torch's own kernels for the derivatives of convolution and pooling."""
    parts, clients, images = layers(theta, side, classes), len(theta), x.squeeze(2).transpose(0, 1)
    first = F.conv2d(images, parts.k1, parts.c1, groups=clients).relu_()
    pooled, places = F.max_pool2d(first, 2, return_indices=True)
    second = F.conv2d(pooled, parts.k2, parts.c2, groups=clients).relu_()
    hidden = second.unflatten(1, (clients, SECOND)).transpose(0, 1).flatten(2)
    residual = torch.baddbmm(parts.b, hidden, parts.w).softmax(-1).neg_()
    residual.scatter_add_(2, y[:, :, None], residual.new_ones(1).expand(*y.shape, 1))
    outer = torch.bmm(residual, parts.w.mT)
    outer = outer.view(clients, len(second), SECOND, *second.shape[2:]).transpose(0, 1).flatten(1, 2).mul_(second > 0)
    inner, d2, e2 = _back(outer, pooled, parts.k2, clients, (True, True, True))
    back = torch.ops.aten.max_pool2d_with_indices_backward(
        inner, first, [2, 2], [2, 2], [0, 0], [1, 1], False, places
    ).mul_(first > 0)
    _, d1, e1 = _back(back, images, parts.k1, clients, (False, True, True))
    pieces = [d1, e1, d2, e2, torch.bmm(hidden.mT, residual), residual.sum(1)]
    return torch.cat([piece.reshape(clients, -1) for piece in pieces], 1)[:, None]


def _back(
    outer: Tensor, inputs: Tensor, kernel: Tensor, groups: int, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """A convolution's derivatives in its inputs, kernel and bias."""
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        outer, inputs, kernel, [len(kernel)], [1, 1], [0, 0], [1, 1], False, [0, 0], groups, wanted
    )
    return found
