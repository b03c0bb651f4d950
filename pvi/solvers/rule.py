"""What a method does in a visit of gradient steps: where it starts, a step, and what it comes to."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.solvers.personal import Personal

Likelihood = Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]
"""From q's means and standard deviations, each ``[size]``, to x -> (n/b) Σ log p(y_j | x) in nats over the step's rows.

Only layers that are drawn by row look at q; x then has the rows' own noise behind it.
"""


class Begun(NamedTuple):
    """A client's ``state``, which the steps change, and what they do not; tensors of the same shapes at all clients."""

    state: tuple[Tensor, ...]
    fixed: tuple[Tensor, ...]


class Rule(Protocol):
    """What a method does in a visit; a frozen dataclass, so that one captured graph serves all visits.

    :class:`~pvi.solvers.local_steps.LocalSteps` makes a solver of it.
    """

    @property
    def name(self) -> str:
        """For histories and logs."""

    @property
    def num_particles(self) -> int:
        """Draws of the latents a step; 0 where a step needs no noise."""

    @property
    def batch_size(self) -> int | None:
        """Rows a step, all where ``None``."""

    @property
    def local_reparameterisation(self) -> bool:
        """Whether layers are drawn row by row."""

    def steps(self, rows: int) -> int:
        """Steps of a client with so many rows."""

    def check(self, problem: LocalProblem) -> None:
        """Raises ``ValueError`` for a problem that the method has no meaning for."""

    def begin(
        self, problem: LocalProblem, sent: Tensor, personal: Personal | None, rows_a_step: int, seed: int
    ) -> Begun:
        """Where a visit starts."""

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The next state and the step's objective in nats (maximised); safe under ``torch.func.vmap``.

        ``numbers [num_particles, size + rows' noise]`` are standard normal.
        """

    def end(self, problem: LocalProblem, begun: Begun, sent: Tensor) -> tuple[Tensor, Personal | None]:
        """η of the answer, and what the client keeps."""
