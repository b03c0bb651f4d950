"""The law suite of local solvers: conjugate problems whose posterior is known in closed form."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyro
import pyro.distributions as dist
import torch
from scipy import stats
from torch import Tensor

from pvi.objectives import LocalProblem, local_free_energy
from pvi.problem import build_problem
from pvi.solvers import Solver

CHANCE = 1e-4
"""Probability that noise alone makes an average fail: the allowance is Student's quantile of the pooled spread."""
DEGREES = 8
"""Degrees of freedom that the pooled spread has at least: fixes the number of seeds."""
EXACT = 1e-6
"""Posterior standard deviations: what a solver without noise may be off."""


class Conjugate(NamedTuple):
    """A local problem with its cavity, the starts to try, and the exact q (means and standard deviations)."""

    name: str
    problem: LocalProblem
    cavity: Tensor
    starts: tuple[Tensor, ...]
    loc: Tensor
    scale: Tensor


def check_solver(
    solver: Solver, *, seed: int = 0, noise: float = 0.1, problems: Sequence[Conjugate] | None = None
) -> None:
    """Check a :class:`~pvi.solvers.protocol.Solver` on conjugate problems (default: :func:`conjugate_problems`).

    From every start, the average over seeds of its means and log standard deviations is the exact one within the
    solver's own noise, cavities proper and improper; that noise, in posterior standard deviations, stays below
    ``noise``. A solve repeats bit for bit under its seed, and leaves its arguments, torch's global random state, the
    default dtype and Pyro's parameter store alone.

    >>> from pvi.solvers import Newton
    >>> check_solver(Newton())

    Raises:
        AssertionError: naming the solver, the problem and the law.
    """
    problems = conjugate_problems() if problems is None else problems
    check_pure(solver, problems[0], seed)
    for conjugate in problems:
        _exact(solver, conjugate, seed, noise)


def conjugate_problems() -> tuple[Conjugate, ...]:
    """An unknown mean, and linear regressions under mean field and full covariance, with cavities of all kinds."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    y = 0.7 + normal(20)
    x = normal(30, 3) @ torch.tensor([[1.0, 0.4, 0.0], [0.0, 1.0, -0.3], [0.0, 0.0, 1.0]], dtype=torch.float64)
    outcome = x @ torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64) + 0.5 * normal(30)
    narrow = {"loc": torch.full((3,), 1.5), "scale": 0.3}
    return (
        _conjugate("unknown mean", _unknown_mean, (y,), None, torch.zeros(1), {"loc": torch.ones(1), "scale": 0.5}),
        _conjugate("linear regression", _regression, (x, outcome), None, torch.zeros(3), narrow),
        _conjugate("linear regression, improper cavity", _regression, (x, outcome), None, _improper(), narrow),
        _conjugate("full covariance, improper cavity", _regression, (x, outcome), "full", _improper(), narrow),
    )


def _improper() -> Tensor:
    """What another client's factor took away: more precision than the prior has, in one direction."""
    return torch.tensor([1.4, 0.3, -0.5])


def _unknown_mean(y: Tensor) -> None:
    loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc, 1.0), obs=y)


def _regression(x: Tensor, y: Tensor) -> None:
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def _conjugate(
    name: str,
    model: Callable[..., Any],
    data: tuple[Tensor, ...],
    guide: str | None,
    taken: Tensor,
    other: dict[str, Any],
) -> Conjugate:
    """The problem whose cavity is the standard normal prior less the precisions ``taken`` and a pull of 0.3."""
    built = build_problem(model, [data], guide, torch.device("cpu"), torch.float64)
    problem = built.clients["client 0"]
    family, prior = problem.family, built.prior.natural
    size = family.size
    design = data[0] if len(data) == 2 else torch.ones(len(data[0]), 1, dtype=torch.float64)
    noise = 0.5 if len(data) == 2 else 1.0
    one = torch.ones(size, dtype=torch.float64)
    # exp(-½ Σ λ_i x_i²) as a factor: rows of the identity, weighted.
    removed = family.quadratic(-0.3 * one, torch.eye(size, dtype=torch.float64), taken.double(), 0 * one)
    cavity = prior - removed
    precision = torch.diag(1 - taken.double()) + design.mT @ design / noise**2
    pull = 0.3 * one + design.mT @ data[-1] / noise**2
    loc = torch.linalg.solve(precision, pull)
    scale = torch.linalg.inv(precision).diagonal().sqrt() if guide == "full" else precision.diagonal().rsqrt()
    second = family.relocate(prior / other["scale"] ** 2, other["loc"].double())
    return Conjugate(name, problem, cavity, (prior, second), loc, scale)


def _exact(solver: Solver, conjugate: Conjugate, seed: int, noise: float) -> None:
    problem, family = conjugate.problem, conjugate.problem.family
    coordinates = 2 * family.size * len(conjugate.starts)
    seeds = 1 + math.ceil(DEGREES / coordinates)
    groups = []
    for start in conjugate.starts:
        results = []
        for k in range(seeds):
            natural, info = solver.solve(problem, conjugate.cavity, start, seed + k)
            assert bool(family.is_proper(natural)), f"{solver.name}, {conjugate.name}: the result is improper"
            reported, true = info.free_energy, local_free_energy(problem, natural, conjugate.cavity).value
            assert abs(reported - true) < 1, (
                f"{solver.name}, {conjugate.name}: reports a free energy of {reported:.4g} nats where it is {true:.4g}"
            )
            loc = (family.location(natural) - conjugate.loc) / conjugate.scale
            results.append(torch.cat([loc, (family.variance(natural).sqrt() / conjugate.scale).log()]))
        groups.append(torch.stack(results))
    # Every coordinate is in posterior standard deviations, so that one spread pools them all.
    spread = torch.stack([group.var(0).mean() for group in groups]).mean().sqrt().item()
    assert spread <= noise, f"{solver.name}, {conjugate.name}: noise of {spread:.2g} sd, allowed {noise:g}"
    quantile = float(stats.t.isf(CHANCE / 2, (seeds - 1) * coordinates))
    allowed = quantile * spread / seeds**0.5 + EXACT
    for label, group in zip(("the prior", "a narrow q elsewhere"), groups, strict=True):
        worst = group.mean(0).abs().max().item()
        assert worst <= allowed, (
            f"{solver.name}, {conjugate.name}, started at {label}: {worst:.2g} posterior standard deviations from the "
            f"exact answer, allowed {allowed:.2g}"
        )


def check_pure(solver: Solver, conjugate: Conjugate, seed: int) -> None:
    """Two solves under one seed are equal to the last bit, and nothing outside is changed."""
    cavity, start = conjugate.cavity.clone(), conjugate.starts[0].clone()
    dtype, state = torch.get_default_dtype(), torch.get_rng_state()
    store = pyro.get_param_store()
    with store.scope():
        pyro.param("a stranger's parameter", torch.tensor(1.0))
        first, info = solver.solve(conjugate.problem, cavity, start, seed)
        names = set(store.keys())
    assert names == {"a stranger's parameter"}, f"{solver.name}: left {names} in Pyro's parameter store"
    assert torch.equal(state, torch.get_rng_state()), f"{solver.name}: moved torch's global random state"
    assert torch.get_default_dtype() == dtype, f"{solver.name}: changed the default dtype"
    assert torch.equal(cavity, conjugate.cavity), f"{solver.name}: changed the cavity in place"
    assert torch.equal(start, conjugate.starts[0]), f"{solver.name}: changed the start in place"
    assert not first.requires_grad, f"{solver.name}: the result carries a gradient"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        again, info_again = solver.solve(conjugate.problem, cavity, start, seed)
    assert torch.equal(first, again), f"{solver.name}: two solves under one seed differ"
    assert info == info_again, f"{solver.name}: two solves under one seed report {info} and {info_again}"
