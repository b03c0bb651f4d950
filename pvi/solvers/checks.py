"""What methods with steps of their own ask of a problem, and of their options."""

from typing import Any

from pvi.families.kinds import is_discrete
from pvi.families.mean_field import is_mean_field
from pvi.objectives import LocalProblem
from pvi.solvers.protocol import check_variational


def check_shared(problem: LocalProblem, method: str, why: str) -> None:
    """Raises ``ValueError`` where latents are private, or alpha is not 0.

    ``why`` says in the message what ``method`` does with latents, so that it has no use for private ones.
    """
    check_variational(problem, method)
    own = [site.name for site in (*problem.program.sites.private, *problem.program.sites.enumerated)]
    if own:
        raise ValueError(
            f"client {problem.client!r}: {method} {why}, but the model has private "
            f"ones, {own}; leave out infer={{'pvi': 'private'}}, or use algorithm='pvi'"
        )


def check_shared_mean_field(problem: LocalProblem, method: str, why: str) -> None:
    """As :func:`check_shared`; raises ``ValueError`` where q is not mean field too."""
    check_shared(problem, method, why)
    if is_mean_field(problem.family):
        return
    members = dict(zip(problem.family.names, problem.family.members, strict=True))
    discrete = [name for name, member in members.items() if is_discrete(member)]
    hint = (
        f"the discrete latents {discrete} have none: sum them out in the model" if discrete else "leave the guide out"
    )
    raise ValueError(
        f"client {problem.client!r}: {method} is defined for a mean-field Gaussian, got {', '.join(members)} in "
        f"{tuple(members.values())}; {hint}"
    )


def check_whole(method: str, **given: Any) -> None:
    """Raises ``ValueError`` for an option that is no whole number from 1; ``None`` passes."""
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"{method}: {name} must be a whole number, at least 1, got {value!r}")


def check_number(method: str, **given: Any) -> None:
    """Raises ``ValueError`` for an option that is no finite number from 0."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"{method}: {name} is a finite number from 0, got {value!r}")
