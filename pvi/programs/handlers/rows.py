"""Choose the rows that a subsampling plate visits."""

from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor


class Rows(Messenger):
    """A plate that subsamples visits ``rows``, or its first ones (``None``), and draws none at random.

    The plate still scales its sites by size / subsample_size, so ``rows`` must have ``subsample_size`` entries.

    >>> import pyro, torch
    >>> with Rows(torch.tensor([3, 1])), pyro.plate("rows", 5, subsample_size=2) as rows:
    ...     print(rows)
    tensor([3, 1])
    """

    def __init__(self, rows: Tensor | None) -> None:
        super().__init__()
        self.rows = rows

    def _pyro_sample(self, msg: Any) -> None:
        plate = msg["fn"]
        if isinstance(plate, _Subsample) and plate.subsample_size is not None and plate.subsample_size < plate.size:
            msg["value"] = torch.arange(plate.subsample_size) if self.rows is None else self.rows
            msg["done"] = True
