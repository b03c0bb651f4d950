"""Scale the log likelihood of every observed site."""

from typing import Any

from pyro.poutine.messenger import Messenger


class ScaleObserved(Messenger):
    """Multiplies the scale of observed sites, latent ones untouched: a mini-batch of b of n rows has scale n/b.

    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> def model():
    ...     pyro.sample("z", dist.Normal(0.0, 1.0))
    ...     pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(0.0))
    >>> with ScaleObserved(5.0):
    ...     trace = pyro.poutine.trace(model).get_trace()
    >>> trace.nodes["z"]["scale"], trace.nodes["y"]["scale"]
    (1.0, 5.0)
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] and not msg["infer"].get("_deterministic"):
            msg["scale"] = msg["scale"] * self.scale
