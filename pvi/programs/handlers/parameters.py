"""Give the ``pyro.param``s of a model their values."""

from collections.abc import Mapping
from typing import Any

from pyro.poutine.messenger import Messenger
from torch import Tensor


class Parameters(Messenger):
    """Every ``pyro.param`` named takes its (constrained) value; Pyro's parameter store is neither read nor written.

    >>> import pyro, torch
    >>> with Parameters({"scale": torch.tensor(2.0)}):
    ...     pyro.param("scale", torch.tensor(1.0))
    tensor(2.)
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.values = values

    def _pyro_param(self, msg: Any) -> None:
        if msg["name"] in self.values:
            msg["value"] = self.values[msg["name"]]
            msg["done"] = True
            # Recorders outside keep a trainable copy otherwise.
            msg["stop"] = True
