"""What a program observes on given data: the values, and the kind of distribution they are seen under."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro import poutine
from torch import Tensor

from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded


class Observation(NamedTuple):
    """An observed site's value and the name of its distribution's class ("Bernoulli")."""

    value: Tensor
    distribution: str


def observations(model: Callable[..., Any], batch: Batch) -> dict[str, Observation]:
    """{observed site: value and distribution} from one run of the program."""
    with running(batch.dtype), poutine.block(), torch.no_grad(), seeded(0, batch.device):
        nodes = poutine.trace(model).get_trace(*batch.args, **batch.kwargs).nodes
    found = {}
    for name, node in nodes.items():
        # Plates and pyro.deterministic sites are marked observed too.
        if node["type"] == "sample" and node["is_observed"] and not node["infer"].get("_deterministic", False):
            if type(node["fn"]).__name__ == "_Subsample":
                continue
            fn = node["fn"]
            while isinstance(fn, torch.distributions.Independent):
                fn = fn.base_dist
            found[name] = Observation(node["value"], type(fn).__name__)
    return found


def without_observations(batch: Batch, found: dict[str, Observation]) -> Batch | None:
    """The batch with None in place of the arguments that are observed; None where some site's value is no argument."""
    missing = {name for name, site in found.items() if not any(_same(value, site.value) for value in batch.values())}
    if missing:
        return None

    def hidden(value: Any) -> Any:
        return None if any(_same(value, site.value) for site in found.values()) else value

    return Batch(tuple(hidden(value) for value in batch.args), {k: hidden(v) for k, v in batch.kwargs.items()})


def _same(argument: Any, value: Tensor) -> bool:
    if argument is value:
        return True
    return isinstance(argument, Tensor) and argument.shape == value.shape and bool((argument == value).all())
