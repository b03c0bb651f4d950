"""What Laplace approximations at clients ask of a problem."""

import torch

from pvi.families.kinds import is_discrete
from pvi.families.mean_field import is_mean_field
from pvi.families.precision import is_full
from pvi.objectives import LocalProblem
from pvi.programs.row_gradients import check_rows
from pvi.solvers.checks import check_shared
from pvi.solvers.step_curvature import LARGEST_MATRIX, Curvature, Structure, check_observations

BY_ROW = ("empirical-fisher", "ggn")


def check_laplace(problem: LocalProblem, method: str, structure: Structure, curvature: Curvature | None) -> None:
    """Raises ``ValueError`` where ``structure`` or ``curvature`` has no meaning for the problem."""
    check_shared(problem, method, "approximates the posterior of every latent")
    family, size = problem.family, problem.family.size
    members = dict(zip(family.names, family.members, strict=True))
    discrete = [name for name, member in members.items() if is_discrete(member)]
    if discrete:
        raise ValueError(
            f"client {problem.client!r}: {method} approximates with Gaussians, and the discrete latents {discrete} "
            "have none: sum them out in the model"
        )
    if structure == "full" and not is_full(family):
        raise ValueError(
            f"client {problem.client!r}: {method} with structure='full' is for one Gaussian of full covariance over "
            f"all latents, got {members}; pass guide='full', or leave the guide out"
        )
    if structure != "full" and not is_mean_field(family):
        raise ValueError(
            f"client {problem.client!r}: {method} with structure={structure!r} is for a mean-field Gaussian, got "
            f"{members}; leave the guide out, or pass structure='full' for one Gaussian of full covariance"
        )
    if (structure != "diagonal" or curvature == "hessian") and size > LARGEST_MATRIX:
        raise ValueError(
            f"client {problem.client!r}: {size:,} latents would need a matrix of {size**2:,} numbers for "
            f"structure={structure!r} with curvature={curvature!r}; at most {LARGEST_MATRIX:,} latents have one: use "
            "structure='diagonal' with another curvature"
        )
    plate = problem.program.sites.subsampling
    if curvature is not None and plate is not None:
        raise ValueError(
            f"client {problem.client!r}: plate {plate[0]!r} draws its own rows, of which {method} cannot tell the "
            "curvature: leave subsample_size out, there is batch_size"
        )
    if curvature in BY_ROW:
        like = torch.zeros((), dtype=problem.batch.dtype, device=problem.batch.device)
        check_rows(problem.program, family.interior(like), problem.batch, problem.client)
        if curvature == "ggn":
            check_observations(problem, family.interior(like))
