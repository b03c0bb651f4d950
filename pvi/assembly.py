"""From programs to problems: what is found out about a model at given hyperparameters.

The prior as a member of the family, each client's likelihood as a linear predictor or a conjugate factor where it is
one, and the server's own problem where the prior lies outside the family.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvi.families import Family, Product, is_gaussian
from pvi.families.extension import extend
from pvi.objectives import NUM_SAMPLES, LocalProblem
from pvi.posterior import Posterior
from pvi.programs.batch import Batch
from pvi.programs.guides import Approximation
from pvi.programs.hyperparameters import Hyperparameters, bind
from pvi.programs.linear_predictor import LinearPredictor, NotAffine, find_predictor
from pvi.programs.prior import OutsideFamily, find_prior
from pvi.programs.private import Local
from pvi.programs.program import Program, log_likelihood, log_prior, log_private_prior
from pvi.programs.recover import RecoveredFactor, recover_factor
from pvi.programs.separable import find_separable
from pvi.programs.sites import Sites
from pvi.solvers import prior_solver

PRIOR = "prior"
"""The name of the server's own problem in messages."""


class Setup(NamedTuple):
    """What stays the same while hyperparameters move."""

    model: Callable[..., Any]
    model_name: str
    observed: tuple[str, ...]
    batches: dict[str, Batch]
    sites: dict[str, Sites]
    shared: Approximation
    locals: dict[str, Local]
    hyperparameters: Hyperparameters
    alpha: float
    like: Tensor
    elbo_samples: int = NUM_SAMPLES


class Problem(NamedTuple):
    """The prior in the guide's family, each client's local problem, and the hyperparameters u they hold for.

    ``prior_problem`` is the server's own where the prior lies outside the family: ``prior`` is then the member of the
    family that the server's factor t_0 corrects.
    """

    setup: Setup
    prior: Posterior
    clients: dict[str, LocalProblem]
    prior_problem: LocalProblem | None
    hyperparameters: Tensor

    @property
    def values(self) -> dict[str, Tensor]:
        """The hyperparameters by name, in their own spaces."""
        return self.setup.hyperparameters.values(self.hyperparameters)

    @property
    def row_shares(self) -> dict[str, float]:
        """Each client's share of all rows."""
        rows = {name: part.batch.num_rows for name, part in self.clients.items()}
        return {name: number / sum(rows.values()) for name, number in rows.items()}

    @property
    def model(self) -> Callable[..., Any]:
        """The model at these hyperparameters."""
        return bind(self.setup.model, self.values)

    @property
    def by_row(self) -> tuple[str, ...]:
        """The names of the clients' own latents with one value a row."""
        sites = next(iter(self.setup.sites.values()))
        return tuple(site.name for site in sites.private if site.by_row)

    @property
    def observed(self) -> tuple[str, ...]:
        """The names of the observed sites."""
        return self.setup.observed

    @property
    def model_name(self) -> str:
        """What the model is found by, where it is found by a name."""
        return self.setup.model_name


def assemble(setup: Setup, u: Tensor, base: Posterior | None = None) -> Problem:
    """The problem at hyperparameters u ``[k]``; ``base`` keeps the member that the server's factor corrects."""
    # One model object for all clients, which are at the same hyperparameters, and for no other run: what the function
    # reads besides its arguments may have changed between two.
    model = functools.partial(program_at(setup, next(iter(setup.batches)), u).model)
    programs = {name: program_at(setup, name, u)._replace(model=model) for name in setup.batches}
    first_name = next(iter(programs))
    first = programs[first_name]._replace(coordinates=setup.shared.coordinates)
    found = find_prior(first, setup.shared, setup.batches, setup.like)
    prior_problem = None
    if isinstance(found, OutsideFamily):
        prior, prior_problem = _prior_problem(setup, first, base)
    else:
        prior = found
    clients: dict[str, LocalProblem] = {}
    for name, program in programs.items():
        clients[name] = _local_problem(setup, name, program, next(iter(clients.values()), None))
    return Problem(setup, prior, clients, prior_problem, u)


def same_kind(first: Problem, second: Problem) -> bool:
    """Whether what was found out about the model is of the same kind: expectations are then taken the same way."""
    if (first.prior_problem is None) != (second.prior_problem is None):
        return False
    return all(_kind(part) == _kind(second.clients[name]) for name, part in first.clients.items())


def _kind(problem: LocalProblem) -> tuple[bool, bool, bool]:
    return isinstance(problem.predictor, NotAffine), problem.conjugate is None, problem.absorbed is None


def program_at(setup: Setup, client: str, u: Tensor) -> Program:
    """A client's program with its hyperparameters at u ``[k]``, differentiable in u."""
    model = bind(setup.model, setup.hyperparameters.values(u))
    return Program(model, setup.sites[client], setup.locals[client].approximation.coordinates)


def _local_problem(setup: Setup, name: str, program: Program, first: LocalProblem | None) -> LocalProblem:
    """A client's problem. What the model is not at the ``first`` client, it is not taken for elsewhere."""
    local, batch, like = setup.locals[name], setup.batches[name], setup.like
    family = local.approximation.family
    absorbed = None
    if program.sites.private and not program.sites.enumerated:
        absorbed = _in_family(family, lambda x: log_private_prior(program, x, batch), like)
        if absorbed is not None:
            program = program._replace(counted=program.likelihood_sites - {site.name for site in program.sites.private})
    predictor: LinearPredictor | NotAffine = NotAffine("its family is not Gaussian")
    if first is not None and isinstance(first.predictor, NotAffine):
        predictor = first.predictor
    elif is_gaussian(family):
        predictor = find_predictor(program, batch, like)
    conjugate = None
    known = first is not None and isinstance(first.predictor, NotAffine) and first.conjugate is None
    if isinstance(predictor, NotAffine) and not known:
        conjugate = _in_family(family, lambda x: log_likelihood(program, x, batch), like)
    # A prior of z that lies in the family is the best first q(z | θ) that can be had.
    conditional = local.conditional if absorbed is None or setup.shared.initial is not None else absorbed.natural
    return LocalProblem(
        name,
        program,
        batch,
        local.approximation,
        predictor,
        local.extension,
        None if absorbed is None else absorbed.natural,
        0.0 if absorbed is None else float(absorbed.constant),
        conjugate,
        None if local.conditional is None else conditional,
        setup.alpha,
        setup.elbo_samples,
    )


def _prior_problem(setup: Setup, program: Program, base: Posterior | None) -> tuple[Posterior, LocalProblem]:
    """The member of the family closest to the prior, and log p(θ) less it as a likelihood of the server's own."""
    family, like = setup.shared.family, setup.like
    names = frozenset(site.name for site in program.sites.shared)
    counted = program._replace(counted=names)
    batch = _small(counted, next(iter(setup.batches.values())), somewhere(family, like))
    approximating = setup.shared._replace(initial=None)
    extension = extend(family, None, None)
    predictor = find_separable(counted, batch, like) if is_gaussian(family) else NotAffine("its family is not Gaussian")
    problem = LocalProblem(PRIOR, counted, batch, approximating, predictor, extension)
    if base is None:
        start = family.natural_from_free(like.new_zeros(family.num_free))
        closest, _ = prior_solver().solve(problem, like.new_zeros(family.num_natural), start, 0)
        base = Posterior(family, closest, setup.shared.coordinates)
    constant = float(family.log_partition(base.natural))
    return base, problem._replace(absorbed=-base.natural, absorbed_constant=constant)


def _small(program: Program, batch: Batch, x: Tensor) -> Batch:
    """One row in place of all, where the prior's density shows no difference: the server needs no rows."""
    if program.sites.subsampling:
        return batch
    one = batch.take(torch.zeros(1, dtype=torch.long, device=batch.device))
    try:
        same = torch.isclose(log_prior(program, x, one), log_prior(program, x, batch))
    except (RuntimeError, ValueError, IndexError):
        return batch
    return one if bool(same) else batch


def _in_family(family: Product, log_factor: Callable[[Tensor], Tensor], like: Tensor) -> RecoveredFactor | None:
    """The factor, where it lies in the family."""
    if is_gaussian(family) and not _is_quadratic(family, log_factor, like):
        return None
    found = recover_factor(family, log_factor, like)
    return found if found.exact else None


def _is_quadratic(family: Family, log_factor: Callable[[Tensor], Tensor], like: Tensor) -> bool:
    """Whether third differences along one line vanish: a cheap no, before anything is recovered."""
    generator = torch.Generator(device=like.device).manual_seed(1)
    direction = torch.randn(family.size, generator=generator, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        values = torch.stack([log_factor(step * direction) for step in (-1.0, 0.0, 1.0, 2.0)])
    third = values @ values.new_tensor([-1.0, 3.0, -3.0, 1.0])
    return bool(third.abs() <= 1e5 * torch.finfo(like.dtype).eps * values.abs().max().clamp(min=1.0))


def somewhere(family: Product, like: Tensor) -> Tensor:
    """A point of the support, the same every time."""
    generator = torch.Generator(device=like.device).manual_seed(0)
    return family.sample(family.natural_from_free(like.new_zeros(family.num_free)), (), generator)
