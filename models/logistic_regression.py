"""Logistic regression: a binary outcome from a row of features.

weights ~ Normal(0, prior_scale)      one a feature
bias    ~ Normal(0, bias_scale)       prior_scale where it is not given
y_i     ~ Bernoulli(logits = x_i · weights + bias)
"""

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor


def model(x: Tensor, y: Tensor | None = None, prior_scale: float = 1.0, bias_scale: float | None = None) -> Tensor:
    """Features ``x [n, d]`` and outcomes ``y [n]`` (0 or 1); returns outcomes ``[n]``.

    Many features need a narrow prior; the bias does not: it must be free to meet how rare the outcome is.
    """
    if x.ndim != 2:
        raise ValueError(f"x must have shape [rows, features], got {list(x.shape)}")
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    scale = torch.full((x.shape[-1],), prior_scale, dtype=x.dtype, device=x.device)
    weights = pyro.sample("weights", dist.Normal(torch.zeros_like(scale), scale).to_event(1))
    bias = pyro.sample(
        "bias", dist.Normal(x.new_tensor(0.0), x.new_tensor(prior_scale if bias_scale is None else bias_scale))
    )
    observed = None if y is None else y.to(x)  # counts and labels are often integers
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=observed)
