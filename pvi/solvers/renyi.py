"""The variational Rényi bound (Li and Turner, 2016): the alpha divergence by draws, any program."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pvi.families import log_prob
from pvi.objectives import LocalProblem, each


def renyi_estimate(
    problem: LocalProblem, cavity: Tensor, natural: Tensor, x: Tensor, likelihood: Callable[[Tensor], Tensor]
) -> Tensor:
    """An estimate of F_α(q) = (1/α) log E_q[w^α], w = p(y_m | θ) cavity(θ) / q(θ), in nats, from K draws ``x``
    ``[K, size]`` of q.

    For α < 1 its maximum over q minimises the paper's D_α[tilted, q]; α → 0 is F_m, and at α = 1 it is the same for
    every q. So the gradient is taken along the draws' paths alone, q's parameters within w held: that is
    ∇F_α / (1 - α) = (E_r[T] - E_q[T]) / α with r ∝ q w^α, which at α = 1 leads to the tilted distribution's moments.
    The cavity counts as exp(η·T), without a constant of its own.

    Biased, value and gradient, by O(1/K) times the variance of w^α: towards F_m, and too narrow a q. With
    mini-batches, likelihood scaled up, the logarithm of the noise adds to it.
    """
    family, alpha = problem.family, problem.alpha
    values = each(likelihood, x, problem.batch.num_rows)
    logs = values + (cavity * family.statistics(x)).sum(-1) - log_prob(family, natural.detach(), x)
    return (torch.logsumexp(alpha * logs, 0) - math.log(len(x))) / alpha
