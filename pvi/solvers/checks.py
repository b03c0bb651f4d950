"""What methods that are defined for one mean-field Gaussian over all latents ask of a problem."""

from pvi.families.mean_field import is_mean_field
from pvi.objectives import LocalProblem
from pvi.solvers.protocol import check_variational


def check_shared_mean_field(problem: LocalProblem, method: str, why: str) -> None:
    """Raises ``ValueError`` where latents are private, q is not mean field, or alpha is not 0.

    ``why`` says in the message what ``method`` does with latents, so that it has no use for private ones.
    """
    check_variational(problem, method)
    own = [site.name for site in (*problem.program.sites.private, *problem.program.sites.enumerated)]
    if own:
        raise ValueError(
            f"client {problem.client!r}: {method} {why}, but the model has private "
            f"ones, {own}; leave out infer={{'pvi': 'private'}}, or use algorithm='pvi'"
        )
    if not is_mean_field(problem.family):
        raise ValueError(
            f"client {problem.client!r}: {method} is defined for a mean-field Gaussian, got "
            f"{', '.join(problem.family.names)} in {problem.family.members}; leave the guide out"
        )
