"""Mixed-effects logistic regression: shared coefficients, an intercept of its own for every client.

weights ~ Normal(0, prior_scale)      one a feature, shared
bias    ~ Normal(0, prior_scale)      shared
effect  ~ Normal(0, effect_scale)     one a client, private: it never leaves the client
y_i     ~ Bernoulli(logits = x_i · weights + bias + effect)

With ``effect_scale=None`` the spread of the clients is unknown: effect_scale ~ LogNormal(-0.7, 1), shared.
"""

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor


def model(x: Tensor, y: Tensor | None = None, prior_scale: float = 1.0, effect_scale: float | None = 1.0) -> Tensor:
    """Features ``x [n, d]`` and outcomes ``y [n]`` (0 or 1); returns outcomes ``[n]``."""
    if x.ndim != 2:
        raise ValueError(f"x must have shape [rows, features], got {list(x.shape)}")
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    scale = torch.full((x.shape[-1],), prior_scale, dtype=x.dtype, device=x.device)
    weights = pyro.sample("weights", dist.Normal(torch.zeros_like(scale), scale).to_event(1))
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), x.new_tensor(prior_scale)))
    if effect_scale is None:
        spread = pyro.sample("effect_scale", dist.LogNormal(x.new_tensor(-0.7), x.new_tensor(1.0)))
    else:
        spread = x.new_tensor(effect_scale)
    effect = pyro.sample("effect", dist.Normal(x.new_tensor(0.0), spread), infer={"pvi": "private"})
    observed = None if y is None else y.to(x)  # counts and labels are often integers
    with pyro.plate("rows", x.shape[0]):
        return pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias + effect), obs=observed)
