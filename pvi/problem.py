"""Everything a run needs to know before its first round, checked: programs, family, prior, clients' problems."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvi.families import GaussianFamily, Product
from pvi.families.extension import extend
from pvi.objectives import LocalProblem
from pvi.posterior import Posterior
from pvi.programs.agreement import check_same_sites
from pvi.programs.batch import Batch
from pvi.programs.batches import client_batches, pool
from pvi.programs.guides import Approximation, FullCovariance, Guide, MeanField, approximation
from pvi.programs.hyperparameters import Hyperparameters, bind, find_hyperparameters
from pvi.programs.linear_predictor import NotAffine, find_predictor
from pvi.programs.names import resolve_model
from pvi.programs.prior import OutsideFamily, find_prior
from pvi.programs.private import Local, localise, without
from pvi.programs.program import Program, check_deterministic, log_likelihood, log_prior, log_private_prior
from pvi.programs.recover import RecoveredFactor, recover_factor
from pvi.programs.sites import ProgramError, Sites, argument_names, discover
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


def build_problem(
    model: Callable[..., Any] | str,
    clients: Any,
    guide: Any,
    device: torch.device,
    dtype: torch.dtype | None,
    *,
    learn: Sequence[str] | str | None = None,
    alpha: float = 0.0,
    pooled: bool = False,
) -> Problem:
    """Resolve and check model, data and guide; see :func:`pvi.fit` for the arguments and the errors."""
    function = resolve_model(model)
    batches = client_batches(clients, argument_names(function))
    first = next(iter(batches.values()))
    precision = dtype if dtype is not None else first.dtype
    if precision not in (torch.float32, torch.float64):
        raise ValueError(f"{precision} is not supported: pass dtype=torch.float32 or torch.float64")
    batches = {name: batch.to(device, precision) for name, batch in batches.items()}
    sites = {name: discover(function, batch, name) for name, batch in batches.items()}
    check_same_sites(sites)
    if pooled:
        batches = pool(batches, sites)
        sites = {name: discover(function, batch, name) for name, batch in batches.items()}
    first_name, first = next(iter(batches.items()))
    if not sites[first_name].shared:
        raise ProgramError("the model has no shared latent site: there is no posterior to compute together")
    like = torch.zeros((), dtype=precision, device=device)
    hyperparameters = find_hyperparameters(sites, learn, like)
    described = _resolve_guide(guide)
    bound = bind(function, hyperparameters.values(hyperparameters.initial))
    shared = _shared(described, sites[first_name], first)
    parts = {name: localise(shared, described, sites[name], batch, like) for name, batch in batches.items()}
    for name, batch in batches.items():
        program = Program(bound, sites[name], parts[name].approximation.coordinates)
        check_deterministic(program, batch, name, _somewhere(parts[name].approximation.family, like))
    observed = tuple(site.name for site in sites[first_name].observed)
    name = _name(model)
    setup = Setup(function, name, observed, batches, sites, shared, parts, hyperparameters, alpha, like)
    return assemble(setup, hyperparameters.initial)


def assemble(setup: Setup, u: Tensor, base: Posterior | None = None) -> Problem:
    """The problem at hyperparameters u ``[k]``; ``base`` keeps the member that the server's factor corrects."""
    programs = {name: program_at(setup, name, u) for name in setup.batches}
    first_name = next(iter(programs))
    first = programs[first_name]._replace(coordinates=setup.shared.coordinates)
    found = find_prior(first, setup.shared, setup.batches, setup.like)
    prior_problem = None
    if isinstance(found, OutsideFamily):
        prior, prior_problem = _prior_problem(setup, first, base)
    else:
        prior = found
    clients = {name: _local_problem(setup, name, program) for name, program in programs.items()}
    return Problem(setup, prior, clients, prior_problem, u)


def program_at(setup: Setup, client: str, u: Tensor) -> Program:
    """A client's program with its hyperparameters at u ``[k]``, differentiable in u."""
    model = bind(setup.model, setup.hyperparameters.values(u))
    return Program(model, setup.sites[client], setup.locals[client].approximation.coordinates)


def _resolve_guide(guide: Any) -> Guide:
    if guide is None or guide == "mean-field":
        return MeanField()
    if isinstance(guide, str):
        if guide != "full":
            raise ValueError(f'unknown guide {guide!r}: None (mean field), "full", or a Pyro guide')
        return FullCovariance()
    if isinstance(guide, MeanField | FullCovariance) or callable(guide):
        return guide
    raise TypeError(f"a guide is None, 'full', pvi.FullCovariance or a Pyro program, got {type(guide).__name__}")


def _shared(guide: Guide, sites: Sites, batch: Batch) -> Approximation:
    if callable(guide) and (sites.private or sites.enumerated):
        guide = without(guide, (*sites.private, *sites.enumerated))
    return approximation(guide, sites.shared, batch)


def _local_problem(setup: Setup, name: str, program: Program) -> LocalProblem:
    local, batch, like = setup.locals[name], setup.batches[name], setup.like
    family = local.approximation.family
    absorbed = None
    if program.sites.private:
        absorbed = _in_family(family, lambda x: log_private_prior(program, x, batch), like)
        if absorbed is not None:
            program = program._replace(counted=program.likelihood_sites - {site.name for site in program.sites.private})
    gaussian = _is_gaussian(family)
    predictor = find_predictor(program, batch, like) if gaussian else NotAffine("its family is not Gaussian")
    conjugate = None
    if isinstance(predictor, NotAffine):
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
    )


def _prior_problem(setup: Setup, program: Program, base: Posterior | None) -> tuple[Posterior, LocalProblem]:
    """The member of the family closest to the prior, and log p(θ) less it as a likelihood of the server's own."""
    family, like = setup.shared.family, setup.like
    names = frozenset(site.name for site in program.sites.shared)
    counted = program._replace(counted=names)
    batch = _small(counted, next(iter(setup.batches.values())), _somewhere(family, like))
    approximating = setup.shared._replace(initial=None)
    extension = extend(family, None, None)
    problem = LocalProblem(PRIOR, counted, batch, approximating, NotAffine("it is a prior"), extension)
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
    if _is_gaussian(family) and not _is_quadratic(family, log_factor, like):
        return None
    found = recover_factor(family, log_factor, like)
    return found if found.exact else None


def _is_quadratic(family: Product, log_factor: Callable[[Tensor], Tensor], like: Tensor) -> bool:
    """Whether third differences along one line vanish: a cheap no, before anything is recovered."""
    generator = torch.Generator(device=like.device).manual_seed(1)
    direction = torch.randn(family.size, generator=generator, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        values = torch.stack([log_factor(step * direction) for step in (-1.0, 0.0, 1.0, 2.0)])
    third = values @ values.new_tensor([-1.0, 3.0, -3.0, 1.0])
    return bool(third.abs() <= 1e5 * torch.finfo(like.dtype).eps * values.abs().max().clamp(min=1.0))


def _is_gaussian(family: Product) -> bool:
    return all(isinstance(member, GaussianFamily) for member in family.members)


def _somewhere(family: Product, like: Tensor) -> Tensor:
    """A point of the support, the same every time."""
    generator = torch.Generator(device=like.device).manual_seed(0)
    return family.sample(family.natural_from_free(like.new_zeros(family.num_free)), (), generator)


def _name(model: Callable[..., Any] | str) -> str:
    if isinstance(model, str):
        return model
    return f"{getattr(model, '__module__', '?')}:{getattr(model, '__qualname__', type(model).__name__)}"
