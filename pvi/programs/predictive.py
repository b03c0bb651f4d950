"""Observed sites at many posterior draws: expectations and pointwise log likelihoods."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.context import running
from pvi.programs.handlers import Values


def expected_values(
    model: Callable[..., Any], observed: tuple[str, ...], draws: Mapping[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """The observed distributions' means at each draw, {site: ``[draws, rows, ...]``}."""
    values: dict[str, list[Tensor]] = {name: [] for name in observed}
    for nodes in _runs(model, draws, batch):
        for name in observed:
            values[name].append(nodes[name]["fn"].mean)
    return {name: torch.stack(value) for name, value in values.items()}


def pointwise(
    model: Callable[..., Any], observed: tuple[str, ...], draws: Mapping[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """log p(y_i | θ_s) in nats, {site: ``[draws, rows]``}, the model's own scales and masks included."""
    values: dict[str, list[Tensor]] = {name: [] for name in observed}
    for nodes in _runs(model, draws, batch):
        for name in observed:
            node = nodes[name]
            if not node["is_observed"]:
                raise ValueError(f"site {name!r} has no observations: pass the data with its targets")
            log_prob = scale_and_mask(node["fn"].log_prob(node["value"]), node["scale"], node["mask"])
            values[name].append(log_prob)
    return {name: torch.stack(value) for name, value in values.items()}


def _runs(model: Callable[..., Any], draws: Mapping[str, Tensor], batch: Batch) -> Any:
    count = len(next(iter(draws.values())))
    dtype = next(iter(draws.values())).dtype
    with running(dtype), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for index in range(count):
            with Values({name: value[index] for name, value in draws.items()}):
                yield poutine.trace(model).get_trace(*batch.args, **batch.kwargs).nodes
