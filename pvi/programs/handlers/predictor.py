"""Read or replace the linear predictor of a generalised linear model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

MARK = "linear_predictor"


class Link(NamedTuple):
    """How a likelihood shows its predictor f, and the same likelihood at another f."""

    read: Callable[[Any], Tensor]
    at: Callable[[Any, Tensor], Any]


LINKS: dict[type, Link] = {
    dist.Bernoulli: Link(lambda fn: fn.logits, lambda fn, f: dist.Bernoulli(logits=f)),
    dist.Binomial: Link(lambda fn: fn.logits, lambda fn, f: dist.Binomial(fn.total_count, logits=f)),
    dist.Poisson: Link(lambda fn: fn.rate.log(), lambda fn, f: dist.Poisson(f.exp())),
    dist.Normal: Link(lambda fn: fn.loc, lambda fn, f: dist.Normal(f, fn.scale)),
    dist.StudentT: Link(lambda fn: fn.loc, lambda fn, f: dist.StudentT(fn.df, f, fn.scale)),
}


class Predictor(Messenger):
    """Finds the predictor of the observed site; with ``replacement`` the likelihood is evaluated there instead.

    A model marks its predictor with ``f = pyro.deterministic("linear_predictor", f)``; without a mark the location,
    logits or log rate of the observed Bernoulli, Binomial, Poisson, Normal or Student is taken. The
    predictor found is left in ``found`` (``None`` where there is none).

    >>> import pyro, torch
    >>> with Predictor() as handler:
    ...     y = pyro.sample("y", dist.Poisson(torch.tensor([1.0, 1.0])), obs=torch.tensor([0.0, 2.0]))
    >>> handler.found
    tensor([0., 0.])
    """

    def __init__(self, replacement: Tensor | None = None, marked: bool = False) -> None:
        super().__init__()
        self.replacement = replacement
        self.marked = marked
        self.found: Tensor | None = None

    def __enter__(self) -> "Predictor":
        self.found = None
        super().__enter__()
        return self

    def _pyro_sample(self, msg: Any) -> None:
        if msg["infer"].get("_deterministic"):
            if msg["name"] == MARK:
                self.marked = True
                self.found = msg["value"]
                if self.replacement is not None:
                    msg["value"] = self.replacement
        elif msg["is_observed"] and not self.marked:
            self._observed(msg)

    def _observed(self, msg: Any) -> None:
        base, dims = _unwrap(msg["fn"])
        link = LINKS.get(type(base))
        if link is None:
            return
        self.found = link.read(base)
        if self.replacement is not None:
            msg["fn"] = link.at(base, self.replacement).to_event(dims)


def _unwrap(fn: Any) -> tuple[Any, int]:
    dims = 0
    while isinstance(fn, torch.distributions.Independent):
        dims += fn.reinterpreted_batch_ndims
        fn = fn.base_dist
    return fn, dims
