"""The limit: mean-field SVI of all clients at once as one writes it by hand in torch for exactly one model.

Parameters lie in one tensor ``[2, clients, size]``, means then log standard deviations; Adam works on it in place.
Gradients come from autograd, or are derived by hand (``by_hand``).
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.hand_models import HandModel, hand_model
from benchmarks.measure import Contender
from benchmarks.problems import Case

AUTOGRAD = "hand-written"
BY_HAND = "hand-derived gradients"
BETA_1, BETA_2, EPSILON, RATE = 0.9, 0.999, 1e-8, 0.01


class Data(NamedTuple):
    """All clients' rows end to end ``[M * n, ...]``, outcomes ``[M * n]``, and where each client's begin ``[M, 1]``."""

    x: Tensor
    y: Tensor
    starts: Tensor
    rows: int


def data_of(case: Case, model: HandModel) -> Data:
    """The clients of a case, which must have equally many rows."""
    rows = len(case.clients[0][0])
    x = model.inputs(torch.cat([x for x, _ in case.clients]))
    y = torch.cat([y for _, y in case.clients])
    return Data(x, y, rows * torch.arange(len(case.clients), device=x.device)[:, None], rows)


class Batches:
    """Mini-batches of all clients ``[M, b, ...]``, without replacement within an epoch, in memory that is kept."""

    def __init__(self, data: Data, batch_size: int | None) -> None:
        number, self._data, self._size = len(data.starts), data, batch_size
        self._all = data.x.unflatten(0, (number, data.rows)), data.y.unflatten(0, (number, data.rows))
        size = batch_size or 0
        self._order, self._used = data.starts.new_empty(0, number * size), 0
        self._x, self._y = (part.new_empty(number * size, *part.shape[1:]) for part in (data.x, data.y))

    def next(self) -> tuple[Tensor, Tensor]:
        """The next step's rows."""
        if self._size is None:
            return self._all
        data, number = self._data, len(self._data.starts)
        if self._used == len(self._order):
            whole = data.rows // self._size
            order = torch.stack([torch.randperm(data.rows, device=data.x.device) for _ in range(number)]) + data.starts
            order = order[:, : whole * self._size].unflatten(1, (whole, self._size))
            self._order, self._used = order.transpose(0, 1).flatten(1), 0
        places = self._order[self._used]
        self._used += 1
        torch.index_select(data.x, 0, places, out=self._x)
        torch.index_select(data.y, 0, places, out=self._y)
        return self._x.unflatten(0, (number, self._size)), self._y.unflatten(0, (number, self._size))


def by_autograd(
    parameters: Tensor, cavity: Tensor, noise: Tensor, x: Tensor, y: Tensor, scale: float, model: HandModel
) -> tuple[Tensor, Tensor]:
    """-Σ_m F_m in nats and its gradient ``[2, M, size]``; ``noise [M, K, size]``, ``cavity`` = (h, -λ/2)."""
    leaf = parameters.detach().requires_grad_()
    loc, log_scale = leaf.unbind(0)
    spread = log_scale.exp()
    theta = torch.addcmul(loc[:, None], spread[:, None], noise)
    likelihood = model.log_likelihood(theta, x, y) * (scale / noise.shape[1])
    rest = (cavity[0] * loc + cavity[1] * (loc.square() + spread.square()) + log_scale).sum()
    loss = -(likelihood + rest)
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def by_hand(
    parameters: Tensor, cavity: Tensor, noise: Tensor, x: Tensor, y: Tensor, scale: float, model: HandModel
) -> tuple[None, Tensor]:
    """The same gradient without autograd, and without the value.

    In m: the mean slope + h - λ m. In log σ: (the mean of slope ε - λ σ) σ + 1.
    """
    loc, spread = parameters[0], parameters[1].exp()
    theta = torch.addcmul(loc[:, None], spread[:, None], noise)
    slope = model.gradient(theta, x, y)
    gradient = torch.empty_like(parameters)
    first, second = gradient
    torch.sum(slope, 1, out=first)
    torch.sum(slope.mul_(noise), 1, out=second)
    share = -scale / noise.shape[1]
    first.mul_(share).sub_(cavity[0]).addcmul_(cavity[1], loc, value=-2.0)
    second.mul_(share).addcmul_(cavity[1], spread, value=-2.0).mul_(spread).sub_(1.0)
    return None, gradient


Gradient = Callable[..., tuple[Tensor | None, Tensor]]


class Adam:
    """Adam in place on one tensor."""

    def __init__(self, parameters: Tensor) -> None:
        self.parameters = parameters
        self._first, self._second = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self._root, self._steps = torch.empty_like(parameters), 0

    def step(self, gradient: Tensor) -> None:
        """One step down."""
        self._steps += 1
        correction = math.sqrt(1 - BETA_2**self._steps)
        self._first.lerp_(gradient, 1 - BETA_1)
        self._second.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        torch.sqrt(self._second, out=self._root).add_(EPSILON * correction)
        self.parameters.addcdiv_(self._first, self._root, value=-RATE * correction / (1 - BETA_1**self._steps))


def handwritten(case: Case, cavity: Tensor, gradient: Gradient, name: str) -> Contender:
    """All clients from N(0, 1); ``cavity [2, M, size]`` in the hand-written order."""
    began = time.perf_counter()
    model = hand_model(case)
    data = data_of(case, model)
    batches = Batches(data, case.batch_size)
    number, size = cavity.shape[1:]
    adam = Adam(torch.zeros_like(cavity))
    noise = cavity.new_empty(number, case.num_particles, size)
    scale = data.rows / case.rows_a_step
    setup = time.perf_counter() - began

    @torch.no_grad()
    def advance(steps: int) -> None:
        for _ in range(steps):
            x, y = batches.next()
            noise.normal_()
            with torch.set_grad_enabled(gradient is by_autograd):
                _, slope = gradient(adam.parameters, cavity, noise, x, y, scale, model)
            adam.step(slope)

    return Contender(name, number, advance, setup)
