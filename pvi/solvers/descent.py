"""How far and how fast a point estimate goes down in a visit: what FedAvg, FedProx, FedCurv and FOLA share."""

from dataclasses import dataclass

from pvi.solvers.optimisers import Optimiser, resolve_optimiser
from pvi.solvers.points import check_steps, steps_of


@dataclass(frozen=True)
class Descent:
    """Either ``local_iterations`` steps a visit or ``epochs`` passes over the client's rows, b = ``batch_size`` a step.

    The optimiser starts anew at every visit. Raises ``ValueError`` for values out of range.
    """

    local_iterations: int | None = 20
    epochs: int | None = None
    batch_size: int | None = 20
    learning_rate: float = 0.01
    optimiser: str = "sgd"

    def __post_init__(self) -> None:
        check_steps(self.method, self.local_iterations, self.epochs, self.batch_size)
        _ = self.stepper

    @property
    def method(self) -> str:
        """What messages call the method."""
        return "FedAvg"

    @property
    def stepper(self) -> Optimiser:
        """The optimiser of a visit."""
        return resolve_optimiser(self.optimiser, self.learning_rate)

    @property
    def num_particles(self) -> int:
        """None: a step needs no noise."""
        return 0

    def steps(self, rows: int) -> int:
        """R, or those of the passes; an incomplete last batch of a pass is skipped."""
        return steps_of(rows, self.local_iterations, self.epochs, self.batch_size)
