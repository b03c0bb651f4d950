"""Quantiles of every coordinate of a member of a family that lives on its site's own support."""

from collections.abc import Callable

import numpy as np
import torch
from scipy import special
from torch import Tensor

from pvi.families import Bernoulli, Beta, Categorical, Dirichlet, Family, Gamma

Standard = dict[str, np.ndarray]


def _gamma(standard: Standard, level: float) -> np.ndarray:
    return special.gammaincinv(standard["concentration"], level) / standard["rate"]


def _beta(standard: Standard, level: float) -> np.ndarray:
    return special.betaincinv(standard["concentration1"], standard["concentration0"], level)


def _dirichlet(standard: Standard, level: float) -> np.ndarray:
    """Each coordinate is a Beta by itself."""
    alpha = standard["concentration"]
    return special.betaincinv(alpha, alpha.sum(-1, keepdims=True) - alpha, level)


def _bernoulli(standard: Standard, level: float) -> np.ndarray:
    return (1 - standard["probs"] < level).astype(standard["probs"].dtype)


def _categorical(standard: Standard, level: float) -> np.ndarray:
    """The first index at which the distribution function reaches the level; at the last one it does."""
    probs = standard["probs"]
    return (probs.cumsum(-1)[..., :-1] < level).sum(-1).astype(probs.dtype)


QUANTILES: dict[type, Callable[[Standard, float], np.ndarray]] = {
    Gamma: _gamma,
    Beta: _beta,
    Dirichlet: _dirichlet,
    Bernoulli: _bernoulli,
    Categorical: _categorical,
}


def quantile(family: Family, natural: Tensor, level: float) -> Tensor | None:
    """The quantile of every coordinate, ``[size]``; ``None`` for a family that has no closed form here."""
    find = QUANTILES.get(type(family))
    if find is None:
        return None
    standard = {name: value.detach().cpu().numpy() for name, value in family.standard(natural).items()}
    return torch.as_tensor(find(standard, level).reshape(-1)).to(natural)
