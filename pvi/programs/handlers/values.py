"""Set latent sites to given values without marking them observed."""

from collections.abc import Mapping
from typing import Any

from pyro.poutine.messenger import Messenger
from torch import Tensor


class Values(Messenger):
    """Every latent site named takes its value; the other sites are untouched.

    Unlike ``poutine.condition`` the sites stay latent, so that priors and likelihoods can still be told apart; unlike
    ``poutine.substitute`` sample sites are reached.

    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> with Values({"z": torch.tensor(2.0)}):
    ...     pyro.sample("z", dist.Normal(0.0, 1.0))
    tensor(2.)
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.values = values

    def _pyro_sample(self, msg: Any) -> None:
        if not msg["is_observed"] and msg["name"] in self.values:
            msg["value"] = self.values[msg["name"]]
            msg["done"] = True
