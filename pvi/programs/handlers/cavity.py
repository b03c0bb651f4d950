"""Swap the priors of the shared sites for an unnormalised factor: the cavity."""

from collections.abc import Callable
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import constraints

from pvi.families import Coordinates


class CavityPrior(Messenger):
    """Shared sites get the density ∝ cavity(x) |dx/dθ| in place of their priors.

    ``log_factor`` maps the unconstrained vector x ``[size]`` to nats and may be improper: nothing is normalised. The
    sites' own distributions keep drawing values (a guide overrides them) and keep shape and support; the whole
    density is booked at the last shared site, when every value is known, and is zero at the others.

    >>> import pyro, torch
    >>> from pvi.families import Coordinates, site_coordinates
    >>> from pvi.programs.handlers import Values
    >>> def model():
    ...     return pyro.sample("z", dist.Normal(0.0, 1.0))
    >>> coordinates = Coordinates((site_coordinates("z", (), constraints.real),))
    >>> with CavityPrior(coordinates, lambda x: -3 * x.sum()):
    ...     trace = pyro.poutine.trace(Values({"z": torch.tensor(2.0)})(model)).get_trace()
    >>> trace.log_prob_sum()
    tensor(-6.)
    """

    def __init__(self, coordinates: Coordinates, log_factor: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.coordinates = coordinates
        self.log_factor = log_factor
        self._values: dict[str, Tensor] = {}

    def __enter__(self) -> Any:
        self._values = {}
        return super().__enter__()

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.coordinates.names and not msg["is_observed"]:
            # Plates have expanded the prior by now: the replacement keeps the expanded shape.
            earlier = dict(self._values)
            complete = len(earlier) == len(self.coordinates.names) - 1
            msg["fn"] = _Booked(
                msg["fn"], (lambda value: self._density({**earlier, msg["name"]: value})) if complete else None
            )

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.coordinates.names:
            self._values[msg["name"]] = msg["value"]

    def _density(self, values: dict[str, Tensor]) -> Tensor:
        x = self.coordinates.unconstrain(values)
        return self.log_factor(x) - self.coordinates.log_abs_det_jacobian(x)


class _Booked(dist.TorchDistribution):
    """The shape, support and draws of a prior with another log density for the whole of its value."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False

    def __init__(self, prior: Any, density: Callable[[Tensor], Tensor] | None) -> None:
        self._prior = prior
        self._booked = density
        super().__init__(prior.batch_shape, prior.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self._prior.support

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        value: Tensor = self._prior.sample(sample_shape)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        if self._booked is None:
            return value.new_zeros(()).expand(self.batch_shape)
        # Plates expect one number a batch element: the total is shared out evenly.
        return (self._booked(value) / self.batch_shape.numel()).expand(self.batch_shape)
