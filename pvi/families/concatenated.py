"""Independent vector distributions end to end, as one ``torch.distributions`` object."""

from typing import ClassVar

import torch
from torch import Tensor


class Concatenated(torch.distributions.Distribution):
    """The law of the concatenation of independent vectors."""

    arg_constraints: ClassVar[dict[str, torch.distributions.constraints.Constraint]] = {}

    def __init__(self, parts: list[torch.distributions.Distribution]) -> None:
        self.parts = parts
        self._sizes = [part.event_shape[0] for part in parts]
        super().__init__(event_shape=torch.Size([sum(self._sizes)]), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """The parts' means."""
        return torch.cat([part.mean for part in self.parts], -1)

    @property
    def variance(self) -> Tensor:
        """The parts' variances."""
        return torch.cat([part.variance for part in self.parts], -1)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # type: ignore[override]
        """Draws ``[*sample_shape, size]``, differentiable."""
        return torch.cat([part.rsample(sample_shape) for part in self.parts], -1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The sum over the parts, nats."""
        pieces = zip(self.parts, value.split(self._sizes, -1), strict=True)
        return torch.stack([part.log_prob(piece) for part, piece in pieces]).sum(0)

    def entropy(self) -> Tensor:
        """The sum over the parts, nats."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)
