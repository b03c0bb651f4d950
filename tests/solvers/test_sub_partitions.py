"""Parts of a client's rows: the limit is that of all rows at once, and the way there is sequential PVI."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, normal, problem_of, regression, subsampled

import pvi
from pvi.objectives import local_free_energy
from pvi.programs.linear_predictor import LinearPredictor
from pvi.solvers import LBFGS, Conjugate, Newton, SolverInfo, SubPartitions
from pvi.solvers.sub_partitions import split_problem

X = normal(30, 2, seed=1) @ torch.tensor([[1.0, 0.5], [0.0, 0.8]], dtype=F64)
Y = (X @ torch.tensor([1.0, -0.7], dtype=F64) + 0.8 * normal(30, seed=2) > 0).to(F64)
POINTS = normal(2, 2, seed=3)


def logistic(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@pytest.mark.parametrize("guide", [None, "full"])
def test_the_limit_is_that_of_all_rows_at_once(guide):
    problem, prior = problem_of(logistic, X, Y, guide=guide)
    exact, truth = Newton().solve(problem, prior.natural, prior.natural, 0)
    natural, info = SubPartitions(Newton(), passes=100).solve(problem, prior.natural, prior.natural, 0)
    assert info.converged
    assert info.free_energy == pytest.approx(truth.free_energy, abs=1e-9)
    assert torch.allclose(natural, exact, atol=1e-5)


def test_the_way_is_that_of_sequential_pvi_with_parts_as_clients():
    problem, prior = problem_of(logistic, X, Y, guide="full")
    solver = SubPartitions(Newton(), parts=3, passes=2, seed=5)
    natural, _ = solver.solve(problem, prior.natural, prior.natural, 0)
    clients = [part.batch.args for part in split_problem(problem, 3, 5, POINTS)]
    result = pvi.fit(logistic, clients, guide="full", schedule="sequential", damping=1.0, rounds=2, solver=Newton())
    assert torch.allclose(natural, result.posterior.natural, atol=1e-8)


def test_conjugate_parts_are_exact_after_one_pass():
    y = X @ torch.tensor([1.0, -0.5], dtype=F64) + normal(30, seed=4)
    problem, prior = problem_of(regression, X, y, guide="full")
    exact, truth = Conjugate().solve(problem, prior.natural, prior.natural, 0)
    start = problem.family.relocate(3 * prior.natural, normal(3, seed=5))
    natural, info = SubPartitions(Conjugate(), passes=2).solve(problem, prior.natural, start, 0)
    assert torch.allclose(natural, exact, atol=1e-9)
    assert info.converged
    assert info.steps == 8
    assert info.free_energy == pytest.approx(truth.free_energy, abs=1e-9)


def test_parts_are_the_same_at_every_visit_and_hold_every_row_once():
    problem, _ = problem_of(logistic, X, Y)
    first, again, other = (split_problem(problem, 4, seed, POINTS) for seed in (0, 0, 1))
    rows = torch.cat([part.batch.args[0] for part in first])
    assert [part.batch.num_rows for part in first] == [8, 8, 7, 7]
    assert torch.equal(rows.sort(0).values, X.sort(0).values)
    assert all(torch.equal(a.batch.args[0], b.batch.args[0]) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.batch.args[0], b.batch.args[0]) for a, b in zip(first, other, strict=True))
    for part in first:
        assert isinstance(part.predictor, LinearPredictor)
        f = part.predictor.design @ POINTS[0] + part.predictor.offset
        chance = dist.Bernoulli(logits=part.batch.args[0] @ POINTS[0])
        assert torch.allclose(part.predictor.log_prob(f), chance.log_prob(part.batch.args[1]))


def test_more_parts_than_rows_are_one_a_row():
    problem, prior = problem_of(logistic, X[:3], Y[:3])
    assert len(split_problem(problem, 10, 0, POINTS)) == 3
    exact, _ = Newton().solve(problem, prior.natural, prior.natural, 0)
    natural, _ = SubPartitions(Newton(), parts=10, passes=100).solve(problem, prior.natural, prior.natural, 0)
    assert torch.allclose(natural, exact, atol=1e-5)


def test_models_without_a_predictor_are_split_too():
    y = 0.5 + normal(12, seed=6)

    def model(y):
        loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.0), 2.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Laplace(loc, 0.5), obs=y)

    problem, prior = problem_of(model, y)
    _, whole = LBFGS().solve(problem, prior.natural, prior.natural, 0)
    natural, info = SubPartitions(LBFGS(), parts=3, passes=10).solve(problem, prior.natural, prior.natural, 0)
    assert abs(LBFGS().solve(problem, prior.natural, natural, 0)[1].free_energy - whole.free_energy) < 1e-4
    found = local_free_energy(problem, natural, prior.natural)
    assert abs(found.value - whole.free_energy) < 5 * found.standard_error + 1e-3
    assert info.free_energy == pytest.approx(found.value)


def test_a_clients_own_latent_counts_once():
    """Its prior lies in the family and so in the cavity, not in the parts."""
    x, y = X, 0.7 + X[:, 0] + 0.5 * normal(30, seed=7)

    def model(x, y):
        slope = pyro.sample("slope", dist.Normal(x.new_tensor(0.0), 1.0))
        own = pyro.sample("own", dist.Normal(x.new_tensor(0.0), 1.0), infer={"pvi": "private"})
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(slope * x[:, 0] + own, 0.5), obs=y)

    problem, prior = problem_of(model, x, y, guide="full")
    start = problem.local(prior.natural, problem.conditional)
    cavity = problem.local_cavity(prior.natural)
    exact, _ = Newton().solve(problem, cavity, start, 0)
    natural, info = SubPartitions(Newton(), passes=100).solve(problem, cavity, start, 0)
    assert info.converged
    assert torch.allclose(natural, exact, atol=1e-5)


def test_a_plate_that_subsamples_is_refused():
    problem, prior = problem_of(lambda y: subsampled(y, 6), normal(20))
    with pytest.raises(ValueError, match="'client 0': SubPartitions cannot split rows that plate 'rows' subsamples"):
        SubPartitions(Conjugate()).solve(problem, prior.natural, prior.natural, 0)


def test_latents_of_rows_are_refused():
    def model(y):
        loc = pyro.sample("loc", dist.Normal(y.new_tensor(0.0), 1.0))
        with pyro.plate("rows", len(y)):
            own = pyro.sample("own", dist.Normal(loc, 1.0))
            pyro.sample("y", dist.Normal(own, 1.0), obs=y)

    problem, prior = problem_of(model, normal(6))
    start, cavity = problem.local(prior.natural, problem.conditional), problem.local_cavity(prior.natural)
    with pytest.raises(ValueError, match=r"cannot split rows with latents of their own \(\['own'\]\)"):
        SubPartitions(LBFGS()).solve(problem, cavity, start, 0)


def test_rows_that_depend_on_each_other_are_refused():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Bernoulli(logits=(x - x.mean(0)) @ weights), obs=y)

    problem, prior = problem_of(model, X, Y)
    with pytest.raises(ValueError, match="'client 0': SubPartitions needs rows that are independent given the latents"):
        SubPartitions(Newton()).solve(problem, prior.natural, prior.natural, 0)


def test_what_is_left_is_said():
    problem, prior = problem_of(logistic, X, Y)
    _, info = SubPartitions(Newton(), passes=1).solve(problem, prior.natural, prior.natural, 0)
    assert not info.converged
    assert info.message.startswith("the last of 1 passes moved q by ")


class Runaway:
    name = "Runaway"

    def solve(self, problem, cavity, start, seed):
        return -start, SolverInfo(1, 0.0, False, "it ran away")


def test_a_part_that_ends_improper_leaves_q_where_it_was():
    problem, prior = problem_of(logistic, X, Y)
    natural, info = SubPartitions(Runaway()).solve(problem, prior.natural, prior.natural, 0)
    assert torch.equal(natural, prior.natural)
    assert info.message == "part 1 of 4 ended improper or not finite; it ran away"
    assert not info.converged


def test_options_are_checked():
    with pytest.raises(ValueError, match="SubPartitions: parts must be at least 1, got 0"):
        SubPartitions(Newton(), parts=0)
    with pytest.raises(ValueError, match="SubPartitions: passes must be at least 1, got 0"):
        SubPartitions(Newton(), passes=0)
    problem, prior = problem_of(logistic, X, Y)
    with pytest.raises(ValueError, match=r"SubPartitions\(Newton\) maximises the variational free energy"):
        SubPartitions(Newton()).solve(problem._replace(alpha=1.0), prior.natural, prior.natural, 0)
