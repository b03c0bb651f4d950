"""Batched log likelihoods of the benchmark models, and their gradients, as one writes them by hand."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import hand_conv
from benchmarks.problems import Case


class HandModel(NamedTuple):
    """Σ_m Σ_k log p(y | θ_mk) in nats of θ ``[M, K, size]`` at rows ``[M, b, ...]``, and its gradient in θ.

    ``inputs`` turns all rows into what the rest is given.
    """

    inputs: Callable[[Tensor], Tensor]
    log_likelihood: Callable[[Tensor, Tensor, Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor]


def hand_model(case: Case) -> HandModel:
    """What the case's model is by hand."""
    if case.kind == "logistic":
        return HandModel(with_ones, logistic, logistic_gradient)
    if case.kind == "conv":
        side, classes = case.layers
        return HandModel(
            lambda x: x,
            lambda theta, x, y: hand_conv.log_likelihood(theta, x, y, side, classes),
            lambda theta, x, y: hand_conv.gradient(theta, x, y, side, classes),
        )
    inputs, hidden, classes = case.layers
    return HandModel(
        lambda x: x,
        lambda theta, x, y: dense(theta, x, y, inputs, hidden, classes),
        lambda theta, x, y: dense_gradient(theta, x, y, inputs, hidden, classes),
    )


def with_ones(x: Tensor) -> Tensor:
    """The intercept as a last column."""
    return torch.cat([x, x.new_ones(len(x), 1)], 1)


def logistic(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Logits by one batched product."""
    logits = torch.bmm(theta, x.mT)
    return -F.binary_cross_entropy_with_logits(logits, y[:, None].expand_as(logits), reduction="sum")


def logistic_gradient(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(y - sigmoid(logits)) x."""
    return torch.bmm(y[:, None] - torch.bmm(theta, x.mT).sigmoid_(), x)


def _layers(theta: Tensor, inputs: int, hidden: int, classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and biases as views of θ ``[M, 1, size]``."""
    sizes = [inputs * hidden, hidden, hidden * classes, classes]
    w1, b1, w2, b2 = theta[:, 0].split(sizes, 1)
    return w1.unflatten(1, (inputs, hidden)), b1[:, None], w2.unflatten(1, (hidden, classes)), b2[:, None]


def dense(theta: Tensor, x: Tensor, y: Tensor, inputs: int, hidden: int, classes: int) -> Tensor:
    """Two batched products."""
    w1, b1, w2, b2 = _layers(theta, inputs, hidden, classes)
    logits = torch.baddbmm(b2, torch.baddbmm(b1, x, w1).relu(), w2)
    return -F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")


def dense_gradient(theta: Tensor, x: Tensor, y: Tensor, inputs: int, hidden: int, classes: int) -> Tensor:
    """Back through both layers, into one tensor."""
    w1, b1, w2, b2 = _layers(theta, inputs, hidden, classes)
    active = torch.baddbmm(b1, x, w1).relu_()
    residual = torch.baddbmm(b2, active, w2).softmax(-1).neg_()
    residual.scatter_add_(2, y[:, :, None], residual.new_ones(1).expand(*y.shape, 1))
    back = torch.bmm(residual, w2.mT).mul_(active > 0)
    gradient = torch.empty_like(theta)
    d1, c1, d2, c2 = _layers(gradient, inputs, hidden, classes)
    torch.bmm(x.mT, back, out=d1)
    torch.sum(back, 1, keepdim=True, out=c1)
    torch.bmm(active.mT, residual, out=d2)
    torch.sum(residual, 1, keepdim=True, out=c2)
    return gradient
