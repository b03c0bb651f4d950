"""The law suite of local solvers: conjugate problems whose posterior is known in closed form."""

import math
from collections.abc import Sequence

import pyro
import torch
from scipy import stats

from pvi.objectives import local_free_energy
from pvi.solvers import Solver
from pvi.testing.solver_problems import Conjugate, conjugate_problems

CHANCE = 1e-4
"""Probability that noise alone makes an average fail: the allowance is Student's quantile of the pooled spread."""
DEGREES = 8
"""Degrees of freedom that the pooled spread has at least: fixes the number of seeds."""
EXACT = 1e-6
"""Posterior standard deviations: what a solver without noise may be off."""


def check_solver(
    solver: Solver, *, seed: int = 0, noise: float = 0.1, problems: Sequence[Conjugate] | None = None
) -> None:
    """Check a :class:`~pvi.solvers.protocol.Solver` on conjugate problems (default: :func:`conjugate_problems`).

    From every start, the average over seeds is the exact q within the solver's own noise, cavities proper and improper
    (in posterior standard deviations, see :meth:`~pvi.testing.solver_problems.Conjugate.deviations`); that noise stays
    below ``noise``. A solve repeats bit for bit under its seed, and leaves its arguments, torch's global random state,
    the default dtype and Pyro's parameter store alone.

    >>> from pvi.solvers import Newton
    >>> check_solver(Newton())

    Raises:
        AssertionError: naming the solver, the problem and the law.
    """
    problems = conjugate_problems() if problems is None else problems
    check_pure(solver, problems[0], seed)
    for conjugate in problems:
        _exact(solver, conjugate, seed, noise)


def _exact(solver: Solver, conjugate: Conjugate, seed: int, noise: float) -> None:
    problem, family = conjugate.problem, conjugate.problem.family
    coordinates = len(conjugate.deviations(conjugate.exact)) * len(conjugate.starts)
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
            results.append(conjugate.deviations(natural))
        groups.append(torch.stack(results))
    # Every coordinate is in posterior standard deviations, so that one spread pools them all.
    spread = torch.stack([group.var(0).mean() for group in groups]).mean().sqrt().item()
    assert spread <= noise, f"{solver.name}, {conjugate.name}: noise of {spread:.2g} sd, allowed {noise:g}"
    quantile = float(stats.t.isf(CHANCE / 2, (seeds - 1) * coordinates))
    allowed = quantile * spread / seeds**0.5 + EXACT
    for label, group in zip(("the prior", "another q"), groups, strict=True):
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
