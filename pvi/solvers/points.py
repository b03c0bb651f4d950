"""What steps of a point estimate have in common: the mean loss, how many a visit makes, what they ask of a problem."""

from collections.abc import Callable

from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.programs.program import num_rows
from pvi.solvers.checks import check_number, check_shared_mean_field, check_whole
from pvi.solvers.rule import Likelihood


def rows_of(problem: LocalProblem) -> int:
    """n, the client's rows."""
    return num_rows(problem.program, problem.batch)


def mean_loss(at: Likelihood, share: Tensor) -> Callable[[Tensor], Tensor]:
    """f(x) = -(1/b) Σ log p(y_j | x) over a step's b rows, in nats a row; ``share`` is 1/n."""

    def loss(x: Tensor) -> Tensor:
        return -share * at(x, x)(x)  # the second argument is for layers drawn by row, of which there are none

    return loss


def steps_of(rows: int, local_iterations: int | None, epochs: int | None, batch_size: int | None) -> int:
    """``local_iterations``, or those of ``epochs`` passes; an incomplete last batch of a pass is skipped."""
    if epochs is None:
        assert local_iterations is not None  # see check_steps
        return local_iterations
    return epochs * max(1, rows // (batch_size or rows))


def check_steps(method: str, local_iterations: int | None, epochs: int | None, batch_size: int | None) -> None:
    """Raises ``ValueError`` unless one of the first two is given, and all that are given are whole numbers from 1."""
    if (local_iterations is None) == (epochs is None):
        raise ValueError(
            f"{method}: give local_iterations or epochs, one of them, got local_iterations={local_iterations!r} and "
            f"epochs={epochs!r}"
        )
    check_whole(method, local_iterations=local_iterations, epochs=epochs, batch_size=batch_size)


def check_count(method: str, **given: int) -> None:
    """Raises ``ValueError`` for an option that is no whole number from 1, ``None`` too."""
    for name, value in given.items():
        if value is None:
            raise ValueError(f"{method}: {name} must be a whole number, at least 1, got None")
    check_whole(method, **given)


def check_positive(method: str, **given: float) -> None:
    """Raises ``ValueError`` for an option that is no finite number above 0."""
    check_number(method, **given)
    for name, value in given.items():
        if not value:
            raise ValueError(f"{method}: {name} is a finite number above 0, got {value!r}")


def check_points(problem: LocalProblem, method: str, epochs: int | None = None) -> None:
    """Raises ``ValueError`` unless the latents are shared and q is mean field, and where epochs cannot be counted."""
    check_shared_mean_field(problem, method, "makes point estimates of every latent")
    check_epochs(problem, method, epochs)


def check_epochs(problem: LocalProblem, method: str, epochs: int | None) -> None:
    """Raises ``ValueError`` where epochs are counted and the model's own plate draws the rows."""
    plate = problem.program.sites.subsampling
    if epochs is not None and plate is not None:
        raise ValueError(
            f"client {problem.client!r}: {method} counts epochs in batches of its own batch_size, but the model's "
            f"plate subsamples {plate[2]} of {plate[1]} rows itself; give local_iterations, or leave the plate's "
            "subsample_size out"
        )


def check_fraction(method: str, **given: float) -> None:
    """Raises ``ValueError`` for an option that does not lie in (0, 1]."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ValueError(f"{method}: {name} lies in (0, 1], got {value!r}")
