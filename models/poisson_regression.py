"""Poisson regression: a count from a row of features, with an optional exposure.

weights ~ Normal(0, prior_scale)      one a feature
bias    ~ Normal(0, prior_scale)
y_i     ~ Poisson(exposure_i · exp(x_i · weights + bias))
"""

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor


def model(x: Tensor, y: Tensor | None = None, exposure: Tensor | None = None, prior_scale: float = 1.0) -> Tensor:
    """Features ``x [n, d]``, counts ``y [n]`` and positive exposures ``[n]``; returns counts ``[n]``."""
    if x.ndim != 2:
        raise ValueError(f"x must have shape [rows, features], got {list(x.shape)}")
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    scale = torch.full((x.shape[-1],), prior_scale, dtype=x.dtype, device=x.device)
    weights = pyro.sample("weights", dist.Normal(torch.zeros_like(scale), scale).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), x.new_tensor(prior_scale)))
    log_rate = x @ weights + bias
    if exposure is not None:
        log_rate = log_rate + exposure.log()
    observed = None if y is None else y.to(x)  # counts and labels are often integers
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Poisson(log_rate.exp()), obs=observed)
