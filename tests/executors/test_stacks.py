"""Clients' data side by side: stacks, padding weights, and what is tried out before they are used."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from together import F64, binary, numbers, outcomes

from pvi.engine import Engine
from pvi.problem import build_problem
from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.program import log_likelihood
from pvi.programs.weighted import refill, signature, tensors_of, weighted_log_likelihood
from pvi.solvers.draws import minibatches, row_generator
from pvi.solvers.lanes import Lanes, Rows
from pvi.stack import NotVectorisable, check_stack, flatten, kind, likelihood, partition, stack


def problems_of(model, data, guide=None):
    built = build_problem(model, data, guide, torch.device("cpu"), F64)
    return list(built.clients.values()), built.prior.natural


def curved(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=torch.sin(x @ weights)), obs=y)


def mixed(y):
    """Latents of its own, an observed site without rows, and one with rows under a scale and a mask."""
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    own = pyro.sample("own", dist.LogNormal(loc, 1.0), infer={"pvi": "private"})
    pyro.sample("anchor", dist.StudentT(3.0, loc, 1.0), obs=y.new_tensor(0.3))
    with pyro.plate("rows", len(y)), pyro.poutine.mask(mask=y > -0.5), pyro.poutine.scale(scale=0.3):
        pyro.sample("y", dist.StudentT(4.0, own, 1.0), obs=y)


def test_padding_repeats_the_first_row_and_weighs_nothing():
    problems, _ = problems_of(curved, binary((2, 5, 3)))
    found = stack(problems)
    assert found.rows == (2, 5, 3)
    assert found.problem is problems[1]
    assert torch.equal(found.weights, torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=F64))
    for index, problem in enumerate(problems):
        for whole, own in zip(found.tensors, tensors_of(problem.batch), strict=True):
            rows = len(own)
            assert torch.equal(whole[index, :rows], own)
            assert torch.equal(whole[index, rows:], own[:1].expand(5 - rows, *own.shape[1:]))


def test_nothing_is_weighted_where_nothing_is_padded():
    problems, _ = problems_of(curved, binary((4, 4)))
    assert stack(problems).weights is None
    assert stack(problems[:1]).tensors[0].shape == (1, 4, 2)


@pytest.mark.parametrize("model", [curved, mixed])
def test_every_lane_has_its_clients_likelihood(model):
    data = binary((2, 5, 3)) if model is curved else outcomes((2, 5, 3))
    problems, _ = problems_of(model, data)
    found, x = stack(problems), numbers(3, problems[0].family.size)
    together = torch.func.vmap(lambda x, t, w: likelihood(found.problem, t, w)(x))(x, found.tensors, found.weights)
    for index, problem in enumerate(problems):
        alone = log_likelihood(problem.program, x[index], problem.batch)
        torch.testing.assert_close(together[index], alone, rtol=1e-12, atol=0)


@pytest.mark.parametrize("model", [curved, mixed])
def test_weights_and_scale_are_those_of_a_mini_batch(model):
    """Weights of 0 and 1 choose rows, the scale is n/b, and what has no rows counts once."""
    (problem,), _ = problems_of(model, (binary if model is curved else outcomes)((6,)))
    x, rows = numbers(problem.family.size), torch.tensor([4, 1])
    weights = torch.zeros(6, dtype=F64).index_fill(0, rows, 1.0)
    estimate = log_likelihood(problem.program, x, problem.batch, rows)
    taken = weighted_log_likelihood(problem.program, x, problem.batch.take(rows), None, 3.0)
    torch.testing.assert_close(taken, estimate, rtol=1e-12, atol=0)
    if model is curved:
        chosen = weighted_log_likelihood(problem.program, x, problem.batch, weights, 3.0)
        torch.testing.assert_close(chosen, estimate, rtol=1e-12, atol=0)


def test_weights_need_one_axis_of_rows():
    def square(y):
        loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
        pyro.sample("y", dist.StudentT(4.0, loc.expand(3, 3), 1.0), obs=y)

    (problem,), _ = problems_of(square, [(numbers(3, 3),)])
    with pytest.raises(ProgramError, match="the density of site 'y' has several axes of 3: which are its rows"):
        weighted_log_likelihood(problem.program, numbers(1), problem.batch, torch.ones(3, dtype=F64))


def test_rows_end_to_end():
    """Mini-batches are gathered from the rows of all clients; single numbers stay with their client."""

    def model(y, level):
        loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.StudentT(4.0, loc + level, 1.0), obs=y)

    data = [(y, torch.tensor(float(k), dtype=F64)) for k, (y,) in enumerate(outcomes((3, 5, 4)))]
    problems, _ = problems_of(model, data)
    found = flatten(problems)
    assert found.offsets.tolist() == [0, 3, 8]
    rows = Rows(Lanes([0, 1, 2], found, 2, list(found.rows)), [4, 5, 6], found.tensors[0])
    alone = [
        minibatches(n, 2, row_generator(seed, torch.device("cpu")))
        for n, seed in zip((3, 5, 4), (4, 5, 6), strict=True)
    ]
    lanes = [0, 1, 2]
    for kept in (None, [2, 1]):
        if kept is not None:
            rows.keep(torch.tensor(kept))
            lanes = kept
        for _ in range(4):
            given = rows.next()
            y, level = given.tensors
            for place, index in enumerate(lanes):
                taken = problems[index].batch.args[0][next(alone[index])]
                assert torch.equal(y[place], taken)
                assert level[place] == index
                assert given.scale[place] == len(problems[index].batch.args[0]) / 2


def test_a_batch_with_other_tensors():
    batch = Batch((numbers(3), "name"), {"level": torch.tensor(1.0), "times": 2})
    other = refill(batch, (numbers(4), torch.tensor(2.0)))
    assert other.args[1] == "name"
    assert other.kwargs["times"] == 2
    assert len(other.args[0]) == 4
    assert other.kwargs["level"] == 2.0


def test_signatures_tell_what_cannot_be_stacked():
    def of(*args, **kwargs):
        return signature(Batch(args, kwargs))

    x = numbers(3, 2)
    assert of(x) == of(numbers(5, 2))
    for other in (of(numbers(3, 4)), of(x.float()), of(x[:, 0]), of(x, 1), of(x.sum()), of(y=x)):
        assert other != of(x)
    assert of(x, 1) != of(x, 1.0)
    assert of(x, 1) != of(x, True)
    listed = [1]
    assert of(x, listed) == of(x, listed)
    assert of(x, listed) != of(x, [1])
    hash(of(x, ([1],)))


def test_stacks_hold_clients_of_one_kind_and_similar_size():
    problems, _ = problems_of(curved, binary((4, 4000, 5, 4, 4100)))
    assert sorted(map(sorted, partition(problems))) == [[0, 2, 3], [1, 4]]
    assert sorted(map(sorted, partition(problems, pad=False))) == [[0, 3], [1], [2], [4]]
    others = [problem._replace(alpha=0.5) for problem in problems[:2]]
    assert kind(others[0]) != kind(problems[0])
    assert len(partition([*problems, *others])) == 4


def test_wide_draws_that_overflow_hide_nothing():
    """A model that counts its rows is found out where its likelihood is finite."""

    def model(y):
        loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1e4))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Poisson((loc.abs() + len(y) / 10.0).exp()), obs=y.abs().round())

    problems, natural = problems_of(model, outcomes((2, 5)))
    naturals = natural.expand(2, -1)
    wide = problems[0].family.sample(naturals, (), torch.Generator().manual_seed(0))
    assert not torch.isfinite(log_likelihood(problems[0].program, wide[0], problems[0].batch))
    with pytest.raises(NotVectorisable, match="beside others: the model counts its rows or looks across them"):
        check_stack(stack(problems), problems, naturals)


def test_what_is_kept_is_forgotten(monkeypatch):
    """The stacks used last stay, whatever the limits."""
    problems, natural = problems_of(curved, binary((3, 3, 3, 3)))
    naturals = [natural] * 4
    engine = Engine(False)
    monkeypatch.setattr("pvi.engine.MAX_STACKS", 2)
    for pair in ((0, 1), (1, 2), (2, 3), (0, 1)):
        engine.groups([problems[k] for k in pair], naturals[:2])
    assert len(engine._stacks) == 2
    monkeypatch.setattr("pvi.engine.MAX_BYTES", 1)
    engine.groups(problems, naturals)
    assert len(engine._stacks) == 1
