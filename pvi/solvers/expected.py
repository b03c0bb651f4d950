"""E_q[log p(y_m | θ)] and its gradient in the mean parameters μ of q, which is a natural gradient: the paper's ∇_μ."""

import torch
from torch import Tensor

from pvi.objectives import LocalProblem, each
from pvi.programs.program import log_likelihood


def likelihood_slopes(problem: LocalProblem, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log p(y_m | x_k) in nats and its gradient at draws ``x [k, size]``: ``[k]`` and ``[k, size]``, without a graph.

    ``rows`` ``[b]`` gives the estimate n/b Σ over these rows.
    """

    def value(x: Tensor) -> Tensor:
        return log_likelihood(problem.program, x, problem.batch, rows)

    def both(x: Tensor) -> Tensor:
        gradient, found = torch.func.grad_and_value(value)(x)
        return torch.cat([found[None], gradient])

    found = each(both, x, problem.batch.num_rows if rows is None else len(rows)).detach()
    return found[:, 0], found[:, 1:]
