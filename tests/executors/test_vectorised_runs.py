"""Whole runs: schedules, hyperparameters, rounds taken back, and clients whose solves end at different times."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from together import F64, binary, check_same, few, fit_both, numbers, outcomes
from torch.distributions import constraints

import pvi
from pvi.damping import Auto
from pvi.executors import Vectorised
from pvi.schedules import Asynchronous, Collect, Dispatch, RandomSubset
from pvi.solvers import SVI


def robust(y):
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    spread = pyro.sample("spread", dist.LogNormal(y.new_zeros(()), 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, loc, spread), obs=y)


def mixed(y):
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    spread = pyro.sample("spread", dist.LogNormal(y.new_zeros(()), 0.5))
    own = pyro.sample("own", dist.Normal(loc, spread), infer={"pvi": "private"})
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, own, 1.0), obs=y)


def learned(x, y):
    prior = pyro.param("prior", torch.tensor(1.0, dtype=F64), constraint=constraints.positive)
    level = pyro.param("level", torch.tensor(0.2, dtype=F64))
    noise = pyro.param("noise", torch.tensor(1.5, dtype=F64), constraint=constraints.positive)
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(2), prior).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, torch.sin(x @ weights) + level, noise), obs=y)


SCHEDULES = {
    "asynchronous": Asynchronous((1.0, 1.0, 2.0, 5.0)),
    "sequential": "sequential",
    "random subset": RandomSubset(2),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    check_same(*fit_both(mixed, outcomes(), schedule=SCHEDULES[name], rounds=3, solver=few(6)))


class Late:
    """The first client answers every other round, on the hyperparameters that it was sent."""

    name = "late"

    def events(self, clients, round_index):
        if round_index == 0:
            yield Dispatch(clients)
            yield Collect(clients)
            yield Dispatch(clients)
        else:
            present = clients[1:] if round_index % 2 else clients
            yield Collect(present)
            yield Dispatch(present)


RUNS = {"synchronous": None, "sequential": "sequential", "one client is late": Late()}


@pytest.mark.parametrize("name", RUNS)
def test_hyperparameters_move_from_round_to_round(name):
    """No graph or stack of an earlier round serves, and clients at others' hyperparameters are not taken for them."""
    loop, together = fit_both(learned, binary((6, 6, 6, 6)), learn="all", rounds=4, schedule=RUNS[name], solver=few(6))
    check_same(loop, together, allowed=1e-7)
    for parameter, value in loop.hyperparameters.items():
        assert (value - together.hyperparameters[parameter]).abs().max() <= 1e-7
        assert (value - {"prior": 1.0, "level": 0.2, "noise": 1.5}[parameter]).abs().max() > 0.01


def test_hyperparameters_that_stay_share_one_graph():
    executor = Vectorised(compile=False)
    check_same(*fit_both(learned, binary(), learn=[], rounds=4, executor=executor, solver=few(6)))
    assert len([key for key in executor.engine._graphs if key[0][0] == "svi"]) == 1


def logistic(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def correlated(clients, rows):
    """Columns that say nearly the same: undamped rounds overshoot."""
    found = []
    for k in range(clients):
        x = numbers(rows, 1, seed=k) + 0.2 * numbers(rows, 4, seed=20 + k)
        found.append((x, (x[:, 0] + 0.5 * numbers(rows, seed=50 + k) > 0).to(F64)))
    return found


def test_rounds_that_are_taken_back():
    """Each client's random numbers are those of its visit, however often it is played."""
    solver = few(40, learning_rate=0.2)
    loop, together = fit_both(logistic, correlated(6, 30), damping=Auto(initial=1.0), rounds=3, solver=solver)
    assert max(record.attempts for record in loop.history) > 1
    check_same(loop, together)


def test_acceleration_mixes_the_same_rounds():
    check_same(*fit_both(robust, outcomes(), acceleration="anderson", rounds=4), allowed=1e-7)


def unequal():
    scales = (1.0, 3.0, 0.1, 1.0, 10.0, 2.0, 0.3)
    return [(scale * numbers(n, seed=n),) for n, scale in zip((2, 5, 9, 20, 6, 3, 14), scales, strict=True)]


ENDS = {
    "plateaus": {"steps": 400, "window": 7, "learning_rate": 0.2},
    "epochs": {"epochs": 40, "batch_size": 3, "window": 7, "learning_rate": 0.2},
    "the last step": {"epochs": 9, "batch_size": 2, "window": 100},
}


@pytest.mark.parametrize("name", ENDS)
def test_solves_that_end_at_different_times(name):
    """Clients that are done leave the batch; whoever stays gets its own answer, at its own learning rate."""
    loop, together = fit_both(robust, unequal(), solver=SVI(num_particles=2, **ENDS[name]), rounds=2)
    steps = [visit.solver.steps for record in loop.history for visit in record.visits]
    assert len(set(steps)) > 3
    # Hundreds of Adam steps on noisy gradients: rounding grows, and the steps at which windows end must not move.
    check_same(loop, together, allowed=1e-6)


def test_solves_of_alpha_divergences_that_end_at_different_times():
    solver = SVI(steps=200, num_particles=2, window=7, learning_rate=0.2)
    loop, together = fit_both(robust, unequal(), solver=solver, rounds=1, algorithm=pvi.PowerEP(0.5))
    assert len({visit.solver.steps for visit in loop.history[0].visits}) > 3
    check_same(loop, together, allowed=1e-6)
