"""Linear regression with known noise: a real outcome from a row of features.

weights ~ Normal(0, prior_scale)      one a feature
bias    ~ Normal(0, prior_scale)
y_i     ~ Normal(x_i · weights + bias, noise_scale)
"""

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor


def model(x: Tensor, y: Tensor | None = None, prior_scale: float = 1.0, noise_scale: float = 1.0) -> Tensor:
    """Features ``x [n, d]`` and outcomes ``y [n]``; returns outcomes ``[n]``."""
    if x.ndim != 2:
        raise ValueError(f"x must have shape [rows, features], got {list(x.shape)}")
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    scale = torch.full((x.shape[-1],), prior_scale, dtype=x.dtype, device=x.device)
    weights = pyro.sample("weights", dist.Normal(torch.zeros_like(scale), scale).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), x.new_tensor(prior_scale)))
    observed = None if y is None else y.to(x)  # counts and labels are often integers
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Normal(x @ weights + bias, x.new_tensor(noise_scale)), obs=observed)
