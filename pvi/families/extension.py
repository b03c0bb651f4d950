"""A client's own latents beside the shared ones: x_local = (x_shared, x_private).

The shared family is extended to a local one in which the client solves; what leaves the client is the marginal over
the shared part. Both maps are exact: :meth:`Extension.embed` is linear in natural parameters (a factor over the shared
latents is one over all of them), :meth:`Extension.marginal` integrates the private part out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families.full_gaussian import FullGaussian
from pvi.families.product import Product


@dataclass(frozen=True)
class Extension:
    """The shared family and the local one.

    Without ``coupled`` the local family is the shared one times independent members. With it the shared family is one
    full-covariance Gaussian, and the first ``coupled`` private reals join it: q(z | θ) then moves with θ.
    """

    shared: Product
    local: Product
    coupled: int = 0

    def embed(self, natural: Tensor) -> Tensor:
        """A shared factor's η as a local factor's, ``[num_natural] -> [local.num_natural]``."""
        rest = self.local.num_natural - self.shared.num_natural
        if not self.coupled:
            return torch.cat([natural, natural.new_zeros(rest)])
        # The lower triangle is stored row by row: the shared block comes first.
        size = self.shared.size
        gap = natural.new_zeros(self.coupled)
        after = natural.new_zeros(rest - self.coupled)
        return torch.cat([natural[:size], gap, natural[size:], after])

    def marginal(self, natural: Tensor) -> Tensor:
        """The η of q(θ) from that of q(θ, z), ``[local.num_natural] -> [num_natural]``."""
        if not self.coupled:
            return natural[: self.shared.num_natural]
        whole = self.local.members[0]
        _, marginal = whole.marginal(natural[: whole.num_natural], 0, self.shared.size)
        return marginal

    def conditional(self, natural: Tensor) -> Tensor:
        """The η of q(z | θ), a local factor whose integral over z is 1 for every θ (up to a constant)."""
        return natural - self.embed(self.marginal(natural))


def extend(shared: Product, coupled: Product | None, independent: Product | None) -> Extension:
    """The extension by private members (``None``: none); the ``coupled`` ones join a shared full Gaussian."""
    joins = coupled is not None and len(shared.members) == 1 and isinstance(shared.members[0], FullGaussian)
    names, members = shared.names, shared.members
    size = 0
    for part in (coupled, independent):
        if part is None:
            continue
        if part is coupled and joins:
            size = part.size
            names, members = ("+".join((*names, *part.names)),), (FullGaussian(shared.size + size),)
        else:
            names, members = names + part.names, members + part.members
    return Extension(shared, Product(names, members), size)
