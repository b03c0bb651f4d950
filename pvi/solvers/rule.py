"""What a method does in a visit of gradient steps: where it starts, a step, and what it comes to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.programs.batch import Batch
from pvi.programs.local_reparameterisation import Layers
from pvi.solvers.personal import Given, Personal


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of a step's rows: ``at(loc, sd)`` is x -> (n/b) Σ log p(y_j | x) in nats.

    ``loc`` and ``sd`` are q's, each ``[size]``: only layers that are drawn by row look at q, and x then has the rows'
    own noise behind it. ``batch`` are the step's rows themselves, ``weights [b]`` 0 where they are padding (``None``:
    nowhere), ``scale`` is n/b, and ``layers`` what layers a rule of squared gradients may use.
    """

    total: Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]
    batch: Batch
    weights: Tensor | None = None
    scale: Tensor | float = 1.0
    layers: Layers | None = None

    def __call__(self, loc: Tensor, sd: Tensor) -> Callable[[Tensor], Tensor]:
        """See the class."""
        return self.total(loc, sd)


class Begun(NamedTuple):
    """A client's ``state``, which the steps change, and what they do not; tensors of the same shapes at all clients.

    ``layers`` are those that the rule asked for, put in by who plays the visit.
    """

    state: tuple[Tensor, ...]
    fixed: tuple[Tensor, ...]
    layers: Layers | None = None


class Ended(NamedTuple):
    """η of the answer, what the client keeps and adds ``beside`` q, and a ``message`` where there is something to say.

    See :class:`~pvi.solvers.personal.Visit`.
    """

    natural: Tensor
    personal: Personal | None = None
    beside: Tensor | None = None
    message: str = ""


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
    def by_layer(self) -> Literal["noise", "squares"] | None:
        """What the model's layers are looked for: to be drawn row by row, or for the squares of rows' gradients."""

    def steps(self, rows: int) -> int:
        """Steps of a client with so many rows."""

    def check(self, problem: LocalProblem) -> None:
        """Raises ``ValueError`` for a problem that the method has no meaning for."""

    def begin(self, problem: LocalProblem, given: Given, rows_a_step: int) -> Begun:
        """Where a visit starts."""

    def step(
        self, problem: LocalProblem, begun: Begun, numbers: Tensor, at: Likelihood
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """The next state and the step's objective in nats (maximised); safe under ``torch.func.vmap``.

        ``numbers [num_particles, size + rows' noise]`` are standard normal.
        """

    def end(self, problem: LocalProblem, begun: Begun, given: Given) -> Ended:
        """What the visit came to."""
