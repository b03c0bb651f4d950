"""Fixed values for the latents on which nothing depends."""

from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from torch.distributions import biject_to


class Placeholders(Messenger):
    """Latent sites that have no value yet get one inside their support: nothing is drawn at random.

    For densities of other sites, which do not depend on these: a prior must not need a client's own latents. Another
    ``offset`` gives other values, which tells whether that is so.

    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> with Placeholders():
    ...     pyro.sample("z", dist.LogNormal(torch.zeros(2), 1.0))
    tensor([1., 1.])
    """

    def __init__(self, device: torch.device | str = "cpu", offset: float = 0.0) -> None:
        super().__init__()
        self.device = device
        self.offset = offset

    def _pyro_sample(self, msg: Any) -> None:
        if msg["done"] or msg["is_observed"] or isinstance(msg["fn"], _Subsample):
            return
        fn = msg["fn"]
        shape = fn.batch_shape + fn.event_shape
        if fn.support.is_discrete:
            support = fn.enumerate_support(expand=False)
            msg["value"] = support[-1 if self.offset else 0][None].expand((1, *shape))[0]
        else:
            transform = biject_to(fn.support)
            msg["value"] = transform(torch.full(transform.inverse_shape(shape), self.offset, device=self.device))
        msg["done"] = True
