"""The models of the speed benchmarks, their clients' synthetic rows, and the settings of a solve."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch import Tensor

Rows = tuple[Tensor, Tensor]
"""Features ``[n, ...]`` and outcomes ``[n]`` of one client."""


class Case(NamedTuple):
    """One benchmark problem: a model, its clients, ``batch_size`` rows (``None``: all) and draws of θ a step.

    ``stock`` is the same model written for :class:`pyro.infer.SVI`: (x, y, batch_size) with a plate that subsamples.
    ``layers`` are the model's shapes, as the hand-written code needs them.
    """

    label: str
    kind: str
    model: Callable[..., Any] | str
    stock: Callable[..., Any]
    clients: list[Rows]
    batch_size: int | None
    num_particles: int
    layers: tuple[int, ...]

    @property
    def rows_a_step(self) -> int:
        """Rows of one client in one step."""
        return self.batch_size or len(self.clients[0][0])

    def to(self, device: torch.device) -> "Case":
        """The same with its rows on a device."""
        return self._replace(clients=[(x.to(device), y.to(device)) for x, y in self.clients])


def stock_logistic(x: Tensor, y: Tensor, batch_size: int | None) -> None:
    """Logistic regression, shaped so that Pyro can vectorise its particles: these lie in front of the plate's axis."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_zeros(()), 1.0))
    with pyro.plate("rows", len(x), subsample_size=batch_size, device=x.device) as rows:
        chosen = x if batch_size is None else x[rows]
        logits = (weights @ chosen.mT).reshape(*bias.shape[:-1], len(chosen)) + bias
        pyro.sample("y", dist.Bernoulli(logits=logits), obs=y if batch_size is None else y[rows])


def network(x: Tensor, hidden: int, classes: int) -> Tensor:
    """Logits ``[n, classes]`` of one hidden layer with N(0, 1) weights and ReLU."""
    inputs = x.shape[1]
    w1 = pyro.sample("w1", dist.Normal(x.new_zeros(inputs, hidden), 1.0).to_event(2))
    b1 = pyro.sample("b1", dist.Normal(x.new_zeros(hidden), 1.0).to_event(1))
    w2 = pyro.sample("w2", dist.Normal(x.new_zeros(hidden, classes), 1.0).to_event(2))
    b2 = pyro.sample("b2", dist.Normal(x.new_zeros(classes), 1.0).to_event(1))
    return F.relu(x @ w1 + b1) @ w2 + b2


def bnn(hidden: int, classes: int) -> Callable[..., None]:
    """The network as a model of rows."""

    def model(x: Tensor, y: Tensor) -> None:
        logits = network(x, hidden, classes)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)

    return model


def convolutions(x: Tensor, classes: int) -> Tensor:
    """Logits ``[n, classes]`` from images ``[n, 1, s, s]``: two 3 x 3 convolutions, a pooling, a linear layer."""
    side = (x.shape[-1] - 2) // 2 - 2
    k1 = pyro.sample("k1", dist.Normal(x.new_zeros(8, 1, 3, 3), 1.0).to_event(4))
    c1 = pyro.sample("c1", dist.Normal(x.new_zeros(8), 1.0).to_event(1))
    k2 = pyro.sample("k2", dist.Normal(x.new_zeros(16, 8, 3, 3), 1.0).to_event(4))
    c2 = pyro.sample("c2", dist.Normal(x.new_zeros(16), 1.0).to_event(1))
    w = pyro.sample("w", dist.Normal(x.new_zeros(16 * side * side, classes), 1.0).to_event(2))
    b = pyro.sample("b", dist.Normal(x.new_zeros(classes), 1.0).to_event(1))
    first = F.max_pool2d(F.relu(F.conv2d(x, k1, c1)), 2)
    return F.relu(F.conv2d(first, k2, c2)).flatten(1) @ w + b


def conv(classes: int) -> Callable[..., None]:
    """The convolutional network as a model of rows."""

    def model(x: Tensor, y: Tensor) -> None:
        logits = convolutions(x, classes)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)

    return model


def stock_classifier(logits: Callable[..., Tensor], *sizes: int) -> Callable[..., None]:
    """A network for :class:`pyro.infer.SVI`: its plate draws the rows."""

    def model(x: Tensor, y: Tensor, batch_size: int | None) -> None:
        plate = pyro.plate("rows", len(x), subsample_size=batch_size, device=x.device)
        with plate as rows:
            inputs, outcomes = (x, y) if batch_size is None else (x[rows], y[rows])
        found = logits(inputs, *sizes)
        with plate:
            pyro.sample("y", dist.Categorical(logits=found), obs=outcomes)

    return model


def logistic(
    clients: int, particles: int = 1, *, features: int = 100, rows: int | list[int] = 2000, batch_size: int | None = 200
) -> Case:
    """Logistic regression on normal features; ``rows`` a client, or each client's."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(features, generator=generator) / features**0.5
    data: list[Rows] = []
    for number in [rows] * clients if isinstance(rows, int) else rows:
        x = torch.randn(number, features, generator=generator)
        y = (torch.rand(number, generator=generator) < torch.sigmoid(3 * x @ truth)).float()
        data.append((x, y))
    label = (
        f"logistic regression, {len(data):,} client{'s' * (len(data) > 1)}, {particles} particle{'s' * (particles > 1)}"
    )
    return Case(label, "logistic", "logistic_regression", stock_logistic, data, batch_size, particles, (features,))


def dense(batch_size: int, clients: int = 10, *, inputs: int = 784, hidden: int = 200, rows: int = 2000) -> Case:
    """The Bayesian network inputs-hidden-10."""
    data = _labelled(clients, rows, (inputs,))
    label = f"network {inputs}-{hidden}-10, {clients} clients, {batch_size} rows"
    stock = stock_classifier(network, hidden, 10)
    return Case(label, "dense", bnn(hidden, 10), stock, data, batch_size, 1, (inputs, hidden, 10))


def convolutional(batch_size: int, clients: int = 10, *, side: int = 14, rows: int = 500) -> Case:
    """The small convolutional network on ``side x side`` images."""
    data = _labelled(clients, rows, (1, side, side))
    label = f"convolutional network, {clients} clients, {batch_size} rows"
    stock = stock_classifier(convolutions, 10)
    return Case(label, "conv", conv(10), stock, data, batch_size, 1, (side, 10))


def _labelled(clients: int, rows: int, shape: tuple[int, ...]) -> list[Rows]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(rows, *shape, generator=generator), torch.randint(10, (rows,), generator=generator))
        for _ in range(clients)
    ]
