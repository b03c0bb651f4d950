"""Closed-form local solves: a likelihood that lies in the family of q is the new factor, whatever the program."""

from dataclasses import dataclass

from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.programs.program import log_likelihood
from pvi.programs.recover import RecoveredFactor, recover_factor
from pvi.solvers.protocol import SolverInfo


class NotConjugateError(ValueError):
    """The closed-form solver was asked to solve a model whose likelihood lies outside the family of q."""


def likelihood_factor(problem: LocalProblem, like: Tensor) -> RecoveredFactor:
    """log p(y_m | θ) = λ·T(θ) + c as λ and c, recovered by evaluation and verified.

    Raises :class:`NotConjugateError` naming the client and the residual where the likelihood lies outside the family.
    """
    found = problem.conjugate
    if found is None:
        found = recover_factor(problem.family, lambda x: log_likelihood(problem.program, x, problem.batch), like)
    if not found.exact:
        raise NotConjugateError(
            f"client {problem.client!r}: Conjugate needs a likelihood in the family of q, but this one is off by "
            f"{found.residual:.2g} of its size (allowed {found.tolerance:.2g}); use pvi.solvers.Newton for "
            "generalised linear models, else pvi.solvers.LBFGS, NaturalGradient or SVI, or a guide whose families are "
            "conjugate (for correlated Gaussians: guide='full')"
        )
    return found


@dataclass(frozen=True)
class Conjugate:
    """η = η_cav + λ for a likelihood exp(λ·T(θ) + c): the exact posterior, in one step.

    A full-covariance Gaussian with a linear-Gaussian likelihood, Gamma with Poisson, Beta with Bernoulli, Dirichlet
    with Categorical, any discrete latent that is alone.

    Raises :class:`NotConjugateError` where the likelihood lies outside the family. An improper result (the cavity took
    away more than the client's rows give) is returned with ``converged`` false.
    """

    @property
    def name(self) -> str:
        """``Conjugate``."""
        return "Conjugate"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; ``start`` and ``seed`` make no difference.

        The same q minimises every alpha divergence, since it is the tilted distribution. The free energy is exact:
        F_m = log ∫ exp(η·T(θ) + c) dθ = A(η) + c, in nats.
        """
        found = likelihood_factor(problem, start)
        natural = cavity + found.natural
        free_energy = (problem.family.log_partition(natural) + found.constant).item()
        proper = bool(problem.family.is_proper(natural))
        message = (
            "" if proper else "cavity times likelihood is improper: the client's rows do not make up for the cavity"
        )
        return natural, SolverInfo(1, free_energy, proper, message)
