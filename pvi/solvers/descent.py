"""How far and how fast a point estimate goes down in a visit: what FedAvg, FedProx, FedCurv and FOLA share."""

from dataclasses import dataclass

from pvi.objectives import LocalProblem
from pvi.solvers.checks import check_whole
from pvi.solvers.optimisers import Optimiser, resolve_optimiser


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
        if (self.local_iterations is None) == (self.epochs is None):
            raise ValueError(
                f"{self.method}: give local_iterations or epochs, one of them, got local_iterations="
                f"{self.local_iterations!r} and epochs={self.epochs!r}"
            )
        check_whole(self.method, local_iterations=self.local_iterations, epochs=self.epochs, batch_size=self.batch_size)
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
        if self.epochs is None:
            assert self.local_iterations is not None  # checked when built
            return self.local_iterations
        return self.epochs * max(1, rows // (self.batch_size or rows))

    def check_epochs(self, problem: LocalProblem) -> None:
        """Raises ``ValueError`` where epochs are counted and the model's own plate draws the rows."""
        plate = problem.program.sites.subsampling
        if self.epochs is not None and plate is not None:
            raise ValueError(
                f"client {problem.client!r}: {self.method} counts epochs in batches of its own batch_size, but the "
                f"model's plate subsamples {plate[2]} of {plate[1]} rows itself; give local_iterations, or leave the "
                "plate's subsample_size out"
            )
