"""The curvature of a client's mean negative log likelihood along the steps of a visit, or at its end.

With g_j = ∇ log p(y_j | θ) over the b rows of a step, per row: the empirical Fisher information (1/b) Σ g_j g_jᵀ (Liu
et al. 2021, equation 21), the square of the mean gradient ((1/b) Σ g_j)((1/b) Σ g_j)ᵀ, which public programs take for
it, the generalised Gauss-Newton matrix, or the Hessian.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.local_reparameterisation import Layers
from pvi.programs.observation_fisher import fisher_roots, hessian
from pvi.programs.program import Program, log_likelihood
from pvi.programs.row_gradients import row_gradients
from pvi.programs.squared_gradients import covers, squared_gradients
from pvi.solvers.lanes import rows_a_step
from pvi.solvers.rule import Likelihood

Curvature = Literal["empirical-fisher", "mean-gradient", "ggn", "hessian"]
Structure = Literal["diagonal", "full", "e-full"]

NUMBERS_AT_ONCE = 20_000_000
"""Of the gradients of single rows, at the end of a visit."""
ROOTS_A_ROW = 16
"""Of a Gauss-Newton matrix, about."""
LARGEST_MATRIX = 20_000
"""Latents whose curvature fits into a matrix: 1.6 GB in single precision."""


class Slope(NamedTuple):
    """Of a step's rows: (n/b) Σ log p in nats ``[]``, its gradient ``[d]``, and the curvature of the mean of a row.

    The curvature is a diagonal ``[d]`` or a matrix ``[d, d]``.
    """

    value: Tensor
    gradient: Tensor
    curvature: Tensor


def slope(
    program: Program, at: Likelihood, x: Tensor, share: Tensor, curvature: Curvature, structure: Structure
) -> Slope:
    """Value, gradient and curvature at x ``[d]``; ``share`` is 1/n. Safe under ``vmap`` and graph capture."""
    batch, weights, each = at.batch, at.weights, share * at.scale
    if curvature == "empirical-fisher" and structure == "diagonal":
        found = squared_gradients(program, at.layers, x, batch, weights)
        return Slope(at.scale * found.value, at.scale * found.gradient, each * found.squares)
    gradient, value = torch.func.grad_and_value(at(x, x))(x)
    if curvature == "hessian":
        matrix = each * hessian(program, x, batch, weights)
        return Slope(value, gradient, matrix.diagonal() if structure == "diagonal" else matrix)
    if curvature == "mean-gradient":
        roots = (share * gradient)[None]
    elif curvature == "ggn":
        roots = torch.sqrt(torch.as_tensor(each)) * fisher_roots(program, x, batch, weights)
    else:
        roots = torch.sqrt(torch.as_tensor(each)) * row_gradients(program, x, batch, weights)
    return Slope(value, gradient, roots.square().sum(0) if structure == "diagonal" else roots.mT @ roots)


def whole_curvature(
    problem: LocalProblem, x: Tensor, batch_size: int | None, curvature: Curvature, structure: Structure,
    layers: Layers | None = None,
) -> Tensor:  # fmt: skip
    """The curvature of the mean of a row at x over all of the client's rows: offline, at the end of a visit.

    ``layers`` of the program make squared gradients of rows cheap, where they cover it.

    Squared mean gradients are those of batches of ``batch_size`` rows, averaged; an incomplete last one is left out.
    """
    program, total = problem.program, problem.batch.num_rows
    size = max(1, NUMBERS_AT_ONCE // (ROOTS_A_ROW * len(x)))
    if curvature == "hessian" or covers(program, layers):
        size = total
    if curvature == "mean-gradient":
        size = rows_a_step(batch_size, problem) or total
    whole, counted = torch.zeros_like(x) if structure == "diagonal" else x.new_zeros(len(x), len(x)), 0
    for start in range(0, total - size + 1 if curvature == "mean-gradient" else total, size):
        part = problem.batch.take(torch.arange(start, min(start + size, total), device=x.device))
        likelihood = Likelihood(_of(program, part), part, layers=layers)
        share = x.new_tensor(1 / part.num_rows)
        whole += part.num_rows * slope(program, likelihood, x, share, curvature, structure).curvature
        counted += part.num_rows
    return whole / counted


def check_observations(problem: LocalProblem, x: Tensor) -> None:
    """Raises ``ValueError`` where an observed distribution has no known Fisher information."""
    try:
        fisher_roots(problem.program, x, problem.batch.take(torch.zeros(1, dtype=torch.long, device=x.device)))
    except ProgramError as error:
        raise ValueError(f"client {problem.client!r}: {error}") from error


def eigenvalues(matrix: Tensor) -> Tensor:
    """Of a symmetric matrix, ascending; NaN where it is not finite, of which torch says that it is ill-conditioned."""
    if not bool(torch.isfinite(matrix).all()):
        return matrix.new_full((len(matrix),), torch.nan)
    found: Tensor = torch.linalg.eigvalsh(0.5 * (matrix + matrix.mT))
    return found


def remark(natural: Tensor, precision: Tensor, curvature: Curvature | None, rate: float, held: Tensor) -> str:
    """What may be wrong with a visit's answer η and its precision, for the case that they are refused.

    ``rate`` is that of plain gradient steps (0 for others), and ``held`` the curvature of the method's own quadratic
    term: where their product is above 2 steps diverge.
    """
    pull = rate * (held.diagonal() if held.ndim == 2 else held).max().item()
    finite = bool(torch.isfinite(natural).all())
    if not finite and pull > 2:
        return (
            f"a step towards its centre is {pull:.3g} times the way there, and diverges from 2 on: take a smaller "
            "learning_rate, or less weight of the prior or penalty"
        )
    if not bool(torch.isfinite(precision).all()):
        return (
            f"its curvature={curvature!r} is not finite: check the scale of the data, or take a smaller learning_rate"
        )
    if not finite:
        return "its steps left the finite numbers: take a smaller learning_rate, or check the scale of the data"
    if curvature == "hessian":
        return "curvature='hessian' may be indefinite; 'ggn', where it is known, and 'empirical-fisher' are not"
    return ""


def _of(program: Program, batch: Batch) -> Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]:
    return lambda loc, sd: partial(log_likelihood, program, batch=batch)
