"""Every solver of the library recovers conjugate posteriors; solvers that are wrong in one place do not."""

import dataclasses
import importlib
import inspect
import pkgutil

import pyro
import pytest
import torch
from pyro.optim import ClippedAdam

import pvi.solvers
from pvi.programs.linear_predictor import NotAffine
from pvi.solvers import (
    LBFGS,
    SOLVERS,
    SVI,
    Conjugate,
    GradientAscent,
    NaturalGradient,
    Newton,
    NotConjugateError,
    NotExactError,
    NotGaussianError,
    PyroSVI,
    RowEP,
    SolverInfo,
    SubPartitions,
    default_solver,
    prior_solver,
    resolve_solver,
)
from pvi.testing import check_solver
from pvi.testing.solver_problems import conjugate_problems, counted_problems
from pvi.testing.solvers import check_pure

GAUSSIAN, COUNTED = conjugate_problems(), counted_problems()
PROBLEMS = (*GAUSSIAN, *COUNTED)

SETTINGS = {
    SVI: {"steps": 600, "learning_rate": 0.1, "num_particles": 8, "window": 30},
    PyroSVI: {"steps": 400, "optim": ClippedAdam({"lr": 0.1, "lrd": 0.99})},
    SubPartitions: {"solver": NaturalGradient(), "parts": 2, "passes": 100},
}
"""Other solvers run as they come."""

REFUSED = {
    (Conjugate, "linear regression"): NotConjugateError,
    (Conjugate, "linear regression, improper cavity"): NotConjugateError,
    **{(LBFGS, problem.name): NotGaussianError for problem in COUNTED},
    **{(Newton, problem.name): NotExactError for problem in COUNTED},
    **{(RowEP, problem.name): ValueError for problem in COUNTED},
    (SVI, "a choice"): ValueError,
}
"""What a solver says it cannot do; whatever is not listed it must do."""


QUICK = (Newton, Conjugate, LBFGS, NaturalGradient, SubPartitions)
"""They need no seeds."""


def discovered():
    found = []
    for info in pkgutil.iter_modules(pvi.solvers.__path__, "pvi.solvers."):
        module = importlib.import_module(info.name)
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ == info.name and hasattr(cls, "solve") and dataclasses.is_dataclass(cls):
                found.append(cls)
    return found


def test_discovery_finds_all_exported_solvers():
    exported = [getattr(pvi.solvers, name) for name in pvi.solvers.__all__]
    assert all(cls in exported for cls in discovered())
    assert {Newton, SVI, PyroSVI} <= set(discovered())


@pytest.mark.parametrize("cls", discovered(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_solves_repeat_and_change_nothing_outside(cls, problem):
    few = {"steps": 20} if any(field.name == "steps" for field in dataclasses.fields(cls)) else {}
    solver = cls(**few or SETTINGS.get(cls, {}))
    if (cls, problem.name) in REFUSED:
        with pytest.raises(REFUSED[cls, problem.name], match="client 0"):
            solver.solve(problem.problem, problem.cavity, problem.starts[0], 3)
        return
    check_pure(solver, problem, seed=3)


def test_functional_svi_finds_an_unknown_mean():
    check_solver(SVI(steps=300, learning_rate=0.1, num_particles=8, window=20), problems=GAUSSIAN[:1])


def solved_by(cls):
    return [problem for problem in PROBLEMS if (cls, problem.name) not in REFUSED]


@pytest.mark.parametrize("cls", QUICK, ids=lambda cls: cls.__name__)
def test_deterministic_solvers_solve_all_conjugate_problems_but_those_refused(cls):
    check_solver(cls(**SETTINGS.get(cls, {})), problems=solved_by(cls))


STOCHASTIC = [cls for cls in discovered() if cls not in (*QUICK, GradientAscent)]
"""Plain gradient steps in η are not meant to arrive; what they are is tested by themselves."""


PAIRS = [
    pytest.param(cls, problem, id=f"{cls.__name__}-{problem.name}") for cls in STOCHASTIC for problem in solved_by(cls)
]


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "problem"), PAIRS)
def test_all_conjugate_problems(cls, problem):
    check_solver(cls(**SETTINGS.get(cls, {})), problems=[problem])


def test_the_default_is_the_most_exact_solver_that_covers_every_client():
    regression, counts = GAUSSIAN[1].problem, COUNTED[0].problem
    assert isinstance(default_solver([regression]), Newton)
    assert isinstance(default_solver([counts, counts]), Conjugate)
    other = counts._replace(conjugate=None)
    assert isinstance(default_solver([counts, other]), NaturalGradient)
    unknown = regression._replace(predictor=NotAffine("it is hidden"))
    assert isinstance(default_solver([regression, unknown]), SVI)
    assert isinstance(default_solver([unknown._replace(alpha=0.5)]), SVI)


def test_solvers_by_name():
    for name, make in SOLVERS.items():
        assert type(resolve_solver(name)) is make
    assert resolve_solver(chosen := Newton(max_steps=3)) is chosen
    with pytest.raises(ValueError, match="unknown solver 'adam'; there are newton, conjugate"):
        resolve_solver("adam")


def test_the_servers_own_solver_takes_every_family():
    for case in (GAUSSIAN[3], COUNTED[0], COUNTED[3]):
        natural, info = prior_solver().solve(case.problem, case.cavity, case.starts[0], 0)
        assert case.deviations(natural).abs().max() < 1e-5
        assert info.converged


def test_the_problems_have_cavities_of_all_kinds():
    for problems in (GAUSSIAN, COUNTED):
        proper = [bool(case.problem.family.is_proper(case.cavity)) for case in problems]
        assert any(proper)
        assert not all(proper)
    # Strong data make every tilted distribution proper.
    assert all(bool(case.problem.family.is_proper(case.exact)) for case in PROBLEMS)


def test_deviations_are_in_posterior_standard_deviations():
    """Of the mean and the log scale for Gaussians; of E[x] for a Gamma's second statistic."""
    regression, rates = GAUSSIAN[1], COUNTED[0]
    family = regression.problem.family
    scale = family.variance(regression.exact).sqrt()
    moved = family.relocate(regression.exact, family.location(regression.exact) + 0.5 * scale)
    assert torch.allclose(regression.deviations(moved)[:3], torch.full((3,), 0.5, dtype=torch.float64))
    wider = family.relocate(regression.exact / 1.1**2, family.location(regression.exact))
    assert torch.allclose(regression.deviations(wider)[3:].exp(), torch.full((3,), 1.1, dtype=torch.float64))
    mean, variance = rates.problem.family.moments(rates.exact)
    second = rates.problem.family.members[0].natural_from_standard(
        concentration=mean * 4, rate=mean.new_full((2,), 4.0)
    )
    twice = rates.problem.family.members[0].natural_from_standard(concentration=mean * 8, rate=mean.new_full((2,), 4.0))
    assert torch.allclose(rates.deviations(second)[2:], torch.zeros(2, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(rates.deviations(twice)[2:], mean / variance.sqrt())


@dataclasses.dataclass(frozen=True)
class Wrong:
    """Newton, but for one thing."""

    name = "Wrong"

    def solve(self, problem, cavity, start, seed):
        return self.spoil(problem, *Newton().solve(problem, cavity, start, seed), cavity=cavity, start=start, seed=seed)


class TooWide(Wrong):
    def spoil(self, problem, natural, info, **_):
        wide = problem.family.relocate(0.9 * natural, problem.family.location(natural))
        return wide, info


class Shifted(Wrong):
    def spoil(self, problem, natural, info, **_):
        loc = problem.family.location(natural)
        return problem.family.relocate(natural, loc + 1e-3), info


class StaysAtItsStart(Wrong):
    def spoil(self, problem, natural, info, start, **_):
        return start, info._replace(free_energy=0.0)


class WrongFreeEnergy(Wrong):
    def spoil(self, problem, natural, info, **_):
        return natural, info._replace(free_energy=-info.free_energy)


class Noisy(Wrong):
    def spoil(self, problem, natural, info, seed, **_):
        loc, scale = problem.family.location(natural), problem.family.variance(natural).sqrt()
        noise = torch.randn(loc.shape, generator=torch.Generator().manual_seed(seed), dtype=loc.dtype)
        return problem.family.relocate(natural, loc + 0.5 * scale * noise), info


class UsesTheGlobalState(Wrong):
    def spoil(self, problem, natural, info, **_):
        torch.randn(1)
        return natural, info


class IgnoresItsSeed(Wrong):
    def spoil(self, problem, natural, info, **_):
        state = torch.get_rng_state()
        amount = 1e-9 * torch.randn(())
        torch.set_rng_state(state)
        return problem.family.relocate(natural, problem.family.location(natural) + amount), info


class LeavesParameters(Wrong):
    def spoil(self, problem, natural, info, **_):
        pyro.param("mine", natural.clone())
        return natural, info


class ChangesTheCavity(Wrong):
    def spoil(self, problem, natural, info, cavity, **_):
        cavity += 1
        return natural, info


class ChangesTheDtype(Wrong):
    def spoil(self, problem, natural, info, **_):
        torch.set_default_dtype(torch.float64)
        return natural, info


WRONG = {
    TooWide: "posterior standard deviations from the exact answer|reports a free energy",
    Shifted: "posterior standard deviations from the exact answer",
    StaysAtItsStart: "reports a free energy|from the exact answer|noise",
    WrongFreeEnergy: "reports a free energy of .* nats where it is",
    Noisy: "noise of .* sd, allowed 0.1|reports a free energy",
    UsesTheGlobalState: "moved torch's global random state",
    IgnoresItsSeed: "two solves under one seed differ",
    LeavesParameters: "left .*mine.* in Pyro's parameter store",
    ChangesTheCavity: "changed the cavity in place",
    ChangesTheDtype: "changed the default dtype",
}


@pytest.mark.parametrize("cls", WRONG, ids=lambda cls: cls.__name__)
def test_a_wrong_solver_is_caught(cls):
    before = torch.get_default_dtype()
    try:
        with pytest.raises(AssertionError, match=WRONG[cls]):
            check_solver(cls(), problems=PROBLEMS[:2])
    finally:
        torch.set_default_dtype(before)
    assert isinstance(Newton().solve(PROBLEMS[0].problem, PROBLEMS[0].cavity, PROBLEMS[0].starts[0], 0)[1], SolverInfo)
