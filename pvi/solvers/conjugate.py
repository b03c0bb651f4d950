"""Closed-form local solves: a likelihood that lies in the family of q is the new factor, whatever the program."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.engine import Engine
from pvi.families import Family
from pvi.objectives import LocalProblem
from pvi.programs.program import log_likelihood
from pvi.programs.recover import RecoveredFactor, recover_factor
from pvi.solvers.protocol import Solved, SolverInfo

IMPROPER = "cavity times likelihood is improper: the client's rows do not make up for the cavity"


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

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> Solved:
        """See :class:`~pvi.solvers.protocol.Solver`; ``start`` and ``seed`` make no difference.

        The same q minimises every alpha divergence, since it is the tilted distribution. The free energy is exact:
        F_m = log ∫ exp(η·T(θ) + c) dθ = A(η) + c, in nats.
        """
        return _add(problem.family, cavity[None], [likelihood_factor(problem, start)])[0]

    def solve_many(
        self,
        problems: Sequence[LocalProblem],
        cavities: Sequence[Tensor],
        starts: Sequence[Tensor],
        seeds: Sequence[int],
        engine: Engine,
    ) -> list[Solved]:
        """See :class:`~pvi.solvers.protocol.ManySolver`: one addition for all clients."""
        families: dict[Family, list[int]] = {}
        for index, problem in enumerate(problems):
            families.setdefault(problem.family, []).append(index)
        solved: dict[int, Solved] = {}
        for family, members in families.items():
            factors = [likelihood_factor(problems[index], starts[index]) for index in members]
            cavity = torch.stack([cavities[index] for index in members])
            solved |= dict(zip(members, _add(family, cavity, factors), strict=True))
        return [solved[index] for index in range(len(problems))]

    def bytes_a_client(self, problem: LocalProblem) -> int:
        """See :class:`~pvi.solvers.protocol.ManySolver`: some copies of η and of Λ."""
        family = problem.family
        return (8 * family.num_natural + 4 * family.size**2) * problem.batch.dtype.itemsize

    def pays_together(self, problems: Sequence[LocalProblem]) -> bool:
        """Whenever there is more than one client."""
        return len(problems) > 1


def _add(family: Family, cavities: Tensor, factors: Sequence[RecoveredFactor]) -> list[Solved]:
    """η_cav + λ of every client, ``cavities [M, num_natural]``."""
    natural = cavities + torch.stack([found.natural for found in factors])
    free_energies = family.log_partition(natural) + torch.stack([found.constant for found in factors])
    found = zip(natural.unbind(), free_energies.tolist(), family.is_proper(natural).tolist(), strict=True)
    return [(one.clone(), SolverInfo(1, value, proper, "" if proper else IMPROPER)) for one, value, proper in found]
