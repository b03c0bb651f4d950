"""Whatever clients bring, each gets its own answer: rows, columns, arguments, mini-batches, layouts in memory."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from together import F64, binary, check_same, few, fit_both, numbers, outcomes

from pvi.executors import Vectorised

pytestmark = pytest.mark.slow  # a graph a case


def location(like):
    return pyro.sample("loc", dist.Normal(like.new_zeros(()), 1.0))


def spread(like):
    return pyro.sample("spread", dist.LogNormal(like.new_zeros(()), 0.5))


def coefficients(x):
    return pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))


def rows(y):
    return pyro.plate("rows", len(y))


def robust(y):
    loc, scale = location(y), spread(y)
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)


def curved(x, y):
    weights = coefficients(x)
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=torch.sin(x @ weights)), obs=y)


def mixed(y):
    loc, scale = location(y), spread(y)
    own = pyro.sample("own", dist.Normal(loc, scale), infer={"pvi": "private"})
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, own, 1.0), obs=y)


@pytest.mark.parametrize("sizes", [(1, 200), (3, 3000, 4), (5,)], ids=str)
def test_sizes(sizes):
    check_same(*fit_both(robust, outcomes(sizes)))


BATCHES = {
    "some clients are smaller than a batch": {"batch_size": 5},
    "nobody is": {"batch_size": 2},
    "everybody is": {"batch_size": 100},
    "epochs": {"batch_size": 5, "epochs": 3},
    "part of an epoch": {"batch_size": 7, "epochs": 0.5},
    "epochs of all rows": {"epochs": 9},
}


@pytest.mark.parametrize("name", BATCHES)
def test_mini_batches(name):
    check_same(*fit_both(curved, binary((3, 7, 12, 30)), solver=few(**BATCHES[name])))


def test_mini_batches_beside_private_latents():
    """A client's own latents count once, however few rows a step takes."""
    check_same(*fit_both(mixed, outcomes((2, 7, 12)), solver=few(batch_size=3), guide="full"))


def subsampled(x, y):
    """Four rows a run, all of them where there are fewer."""
    weights = coefficients(x)
    pyro.sample("anchor", dist.Normal(weights.sum(), 1.0), obs=x.new_tensor(0.3))
    with pyro.plate("rows", len(y), subsample_size=min(4, len(y))) as chosen:
        pyro.sample("y", dist.Bernoulli(logits=torch.sin(x[chosen] @ weights)), obs=y[chosen])


def test_mini_batches_that_the_model_draws():
    check_same(*fit_both(subsampled, binary((3, 7, 4, 7, 12))))


def with_arguments(y, level, *, times, name="a", chosen=None):
    loc, scale = location(y), spread(y)
    factor = {"a": 1.0, "b": 2.0}[name] * (1 if chosen is None else sum(chosen))
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, times * factor * loc + level, scale), obs=y)


def arguments(**others):
    """A single number as a tensor, a plain number, and what else is named, by client."""
    found = []
    for k, (y,) in enumerate(outcomes((5, 7, 5, 9))):
        given = {"y": y, "level": torch.tensor(0.3 * k, dtype=F64), "times": 1 + k // 2}
        found.append(given | {name: values[k] for name, values in others.items()})
    return found


@pytest.mark.parametrize("solver", [few(), few(batch_size=3)], ids=["all rows", "mini-batches"])
def test_numbers_and_keywords(solver):
    check_same(*fit_both(with_arguments, arguments(name=["a", "b", "a", "b"]), solver=solver))


@pytest.mark.parametrize("kinds", [[[1.0], [2.0], [1.0], [2.0]], [([1.0],), ([2.0],), ([1.0],), ([2.0],)]], ids=str)
def test_arguments_without_a_hash(kinds):
    def model(y, level, *, times, chosen):
        with_arguments(y, level, times=times, chosen=[sum(part) if isinstance(part, list) else part for part in chosen])

    check_same(*fit_both(model, arguments(chosen=kinds)))


def test_arguments_that_are_equal_but_not_the_same():
    """1, 1.0 and True are one key of a dict; a model may tell them apart."""

    def model(y, how):
        loc, scale = location(y), spread(y)
        times = {bool: 1.0, int: 2.0, float: 3.0}[type(how)]
        with rows(y):
            pyro.sample("y", dist.StudentT(4.0, times * loc, scale), obs=y)

    hows = [True] * 6 + [1, 1.0]
    check_same(*fit_both(model, [(numbers(5, seed=k), how) for k, how in enumerate(hows)]))


def partly(x, u, y):
    weights = coefficients(x)
    own = pyro.sample("own", dist.Normal(u.new_zeros(u.shape[1]), 1.0).to_event(1), infer={"pvi": "private"})
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=torch.sin(x @ weights + u @ own)), obs=y)


@pytest.mark.parametrize("guide", [None, "full"])
def test_columns_that_only_some_clients_have(guide):
    data = [(x, numbers(len(y), 1 + k % 2, seed=k), y) for k, (x, y) in enumerate(binary())]
    check_same(*fit_both(partly, data, guide=guide))


def test_supports_of_private_latents_that_come_from_the_data():
    """Only one client's bound is another one, and more clients than are tried out are alike."""

    def model(y):
        loc, scale = location(y), spread(y)
        own = pyro.sample("own", dist.Uniform(y.new_tensor(-1.0), y.max()), infer={"pvi": "private"})
        with rows(y):
            pyro.sample("y", dist.StudentT(4.0, loc + own, scale), obs=y)

    data = [(torch.cat([numbers(5, seed=k).clamp(max=0.9), torch.ones(1, dtype=F64)]),) for k in range(8)]
    data[3] = (2 * data[3][0],)
    check_same(*fit_both(model, data))


def flat(x, y):
    """``view`` wants rows one after the other in memory."""
    weights = coefficients(x)
    values = x.view(-1) if x.is_contiguous() else x.reshape(-1)
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=values.reshape(len(y), -1) @ weights), obs=y)


LAYOUTS = {
    "columns first": lambda x: x.mT.contiguous().mT,
    "part of a table": lambda x: torch.cat([x, x, x], 1)[:, 2:4],
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "one row again and again": lambda x: x[:1].expand(len(x), -1),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("first", [True, False])
def test_layouts_in_memory(name, first):
    """A step is captured at one client's data and replayed at that of others."""
    data = [(LAYOUTS[name](x) if (k == 0) == first else x, y) for k, (x, y) in enumerate(binary((12, 12, 12)))]
    check_same(*fit_both(flat, data, executor=Vectorised(compile=False, max_clients_at_once=1)))


@pytest.mark.parametrize("most", [1, 2])
def test_a_few_clients_at_once(most):
    check_same(
        *fit_both(robust, outcomes((2, 9, 4, 4, 30)), executor=Vectorised(compile=False, max_clients_at_once=most))
    )


def test_one_executor_for_several_models():
    """Nothing that is kept from one run is taken for another's, whatever ids come back."""
    executor = Vectorised(compile=False)
    for power in (1.0, 2.0):

        def model(y, listed, power=power):
            loc, scale = location(y), spread(y)
            with rows(y):
                pyro.sample("y", dist.StudentT(4.0, power * listed[0] * loc, scale), obs=y)

        for times in (1.0, 2.0):
            data = [(y, [times]) for (y,) in outcomes((5, 5))]
            check_same(*fit_both(model, data, executor=executor, rounds=1, solver=few(3)))
