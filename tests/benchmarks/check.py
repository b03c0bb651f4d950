"""Whether the hand-written gradients are the library's: same q, same noise, same rows."""

import torch
from torch import Tensor

from benchmarks.hand_models import hand_model
from benchmarks.handwritten import by_autograd, by_hand, data_of
from benchmarks.ours import Prepared
from benchmarks.problems import Case
from pvi.families.kinds import is_gaussian
from pvi.families.product import Product
from pvi.programs.program import log_likelihood
from pvi.solvers.svi_step import loss

TOLERANCE = 1e-3
"""Of the largest entry: single precision, sums of tens of thousands of terms in another order."""


def order(family: Product) -> Tensor:
    """Where the library keeps the hand-written order: all means, then all log standard deviations."""
    means, spreads, start = list[int](), list[int](), 0
    for member in family.members:
        means += range(start, start + member.size)
        spreads += range(start + member.size, start + 2 * member.size)
        start += member.num_free
    return torch.tensor(means + spreads)


def cavities(ready: Prepared) -> Tensor:
    """The clients' cavities ``[2, M, size]`` in the hand-written order."""
    places = order(ready.problems[0].family).to(ready.natural.device)
    return ready.natural[places].reshape(2, 1, -1).expand(-1, len(ready.problems), -1).contiguous()


def library_gradient(ready: Prepared, case: Case, index: int, free: Tensor, noise: Tensor) -> Tensor:
    """That of -F_m in the free coordinates at a client's first rows."""
    problem = ready.problems[index]
    family, rows = problem.family, torch.arange(case.rows_a_step, device=free.device)
    assert is_gaussian(family)

    def negative(free: Tensor) -> Tensor:
        likelihood = lambda x: log_likelihood(problem.program, x, problem.batch, rows)  # noqa: E731
        return loss(problem, ready.natural, free, family.draw(free, noise), likelihood)

    return torch.func.grad(negative)(free)


def largest_difference(case: Case, ready: Prepared) -> float:
    """Of both hand-written gradients from the library's, at the first two clients, as a part of the largest entry."""
    case = case._replace(clients=case.clients[:2])
    cavity, model = cavities(ready)[:, : len(case.clients)].contiguous(), hand_model(case)
    data, (number, size) = data_of(case, model), cavity.shape[1:]
    generator = torch.Generator().manual_seed(1)
    parameters = torch.stack([torch.randn(number, size, generator=generator), torch.full((number, size), -1.0)])
    noise = torch.randn(number, case.num_particles, size, generator=generator)
    parameters, noise = parameters.to(cavity), noise.to(cavity)
    x, y = (part.unflatten(0, (number, data.rows))[:, : case.rows_a_step] for part in (data.x, data.y))
    scale = data.rows / case.rows_a_step
    found = [gradient(parameters, cavity, noise, x, y, scale, model)[1] for gradient in (by_autograd, by_hand)]
    places, worst = order(ready.problems[0].family).to(cavity.device), 0.0
    for index in range(number):
        free = torch.empty_like(ready.natural)
        free[places] = parameters[:, index].flatten()
        library = library_gradient(ready, case, index, free, noise[index])[places]
        worst = max(
            worst, *[((one[:, index].flatten() - library).abs().max() / library.abs().max()).item() for one in found]
        )
    return worst
