"""Closed forms for many clients at once: those of each client alone."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, normal, regression

from pvi.engine import Engine
from pvi.problem import build_problem
from pvi.solvers import Conjugate, ManySolver, NotConjugateError


def counts(y):
    rate = pyro.sample("rate", dist.Gamma(y.new_tensor(2.0), y.new_tensor(1.0)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson(rate), obs=y)


def federation(model, clients, guide):
    built = build_problem(model, clients, guide, torch.device("cpu"), F64)
    return list(built.clients.values()), built.prior.natural


REGRESSION = [(normal(size, 3, seed=size), normal(size, seed=50 + size)) for size in (5, 12, 1, 9)]
COUNTS = [(normal(size, seed=size).exp().round(),) for size in (4, 9, 1)]


@pytest.mark.parametrize(
    ("model", "clients", "guide"), [(regression, REGRESSION, "full"), (counts, COUNTS, "conjugate")]
)
def test_all_clients_at_once_get_what_each_gets_alone(model, clients, guide):
    problems, prior = federation(model, clients, guide)
    # The last cavity takes away more than its client has.
    cavities = [*[(1 + k) * prior for k in range(len(problems) - 1)], -20 * prior]
    given = [cavities, [prior] * len(problems), list(range(len(problems)))]
    many = Conjugate().solve_many(problems, *given, Engine(compile=False))
    infos = [info for _, info in many]
    assert [info.converged for info in infos] == [True] * (len(problems) - 1) + [False]
    for (natural, info), *alone in zip(many, problems, *given, strict=True):
        expected, own = Conjugate().solve(*alone)
        torch.testing.assert_close(natural, expected, rtol=1e-14, atol=1e-14)
        assert info.free_energy == pytest.approx(own.free_energy, rel=1e-12)
        assert info._replace(free_energy=0) == own._replace(free_energy=0)


def test_likelihoods_outside_the_family_are_refused_with_the_client():
    problems, prior = federation(regression, REGRESSION, None)
    with pytest.raises(NotConjugateError, match="client 'client 0'"):
        Conjugate().solve_many(problems, [prior] * 4, [prior] * 4, [0] * 4, Engine(compile=False))


def test_conjugate_is_a_solver_for_many():
    assert isinstance(Conjugate(), ManySolver)
    problems, _ = federation(counts, COUNTS, "conjugate")
    assert Conjugate().pays_together(problems)
    assert not Conjugate().pays_together(problems[:1])
    assert Conjugate().bytes_a_client(problems[0]) > 0
