"""Which solver minimises an alpha divergence: exact moments where rows have factors of their own, else draws."""

from collections.abc import Sequence

from pvi.families.kinds import is_discrete
from pvi.objectives import LocalProblem
from pvi.solvers.conjugate import Conjugate
from pvi.solvers.protocol import Solver
from pvi.solvers.row_ep import RowEP
from pvi.solvers.row_sites import NoLayout, find_layout
from pvi.solvers.svi import SVI

PARTICLES = 32
"""Draws within the logarithm: the bias of the bound falls with their number."""


def alpha_solver(problems: Sequence[LocalProblem]) -> Solver:
    """RowEP where it covers every client's model and family, else functional SVI with many particles.

    Conjugate likelihoods are exact for every alpha. Raises ``ValueError`` for another discrete latent, whose draws have
    no derivative.
    """
    if all(problem.conjugate is not None for problem in problems):
        return Conjugate()
    for problem in problems:
        members = zip(problem.approximation.family.names, problem.approximation.family.members, strict=True)
        discrete = [name for name, member in members if is_discrete(member)]
        if discrete:
            raise ValueError(
                f"client {problem.client!r}: no solver minimises an alpha divergence over the discrete latents "
                f"{discrete}; use algorithm='pvi', or sum them out in the model"
            )
    if any(isinstance(find_layout(problem), NoLayout) for problem in problems):
        return SVI(num_particles=PARTICLES)
    return RowEP()
