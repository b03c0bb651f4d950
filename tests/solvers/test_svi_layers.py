"""SVI with layers drawn row by row: the same answer from quieter gradients, under every executor."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.nn import functional
from toy_programs import F64, problem_of

import pvi
from pvi.executors import Loop, Vectorised
from pvi.objectives import expected_log_likelihood
from pvi.solvers import SVI

HIDDEN = 6


def network(x, y):
    def weights(name, *shape):
        zero = torch.zeros(shape, dtype=F64)
        return pyro.sample(name, dist.Normal(zero, 1.0).to_event(len(shape)))

    first, bias = weights("first", HIDDEN, x.shape[1]), weights("first_bias", HIDDEN)
    second, shift = weights("second", 1, HIDDEN), weights("second_bias", 1)
    hidden = torch.tanh(functional.linear(x, first, bias))
    f = functional.linear(hidden, second, shift)[:, 0]
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(f, 0.5), obs=y)


def regression(x, y):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1], dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def clients(sizes, columns=2):
    generator = torch.Generator().manual_seed(5)
    found = []
    for n in sizes:
        x = torch.randn(n, columns, generator=generator, dtype=F64)
        noise = torch.randn(n, generator=generator, dtype=F64)
        found.append((x, torch.sin(2 * x[:, 0]) + 0.3 * noise))
    return found


def test_the_answer_is_that_of_exact_expectations():
    ((x, y),) = clients([40], columns=3)
    problem, prior = problem_of(regression, x, y)
    exact, _ = pvi.solvers.Newton().solve(problem, prior.natural, prior.natural, 0)
    found, _ = SVI(steps=2000, local_reparameterisation=True).solve(problem, prior.natural, prior.natural, 0)
    sd = problem.family.variance(exact).sqrt()
    assert ((problem.family.location(found) - problem.family.location(exact)) / sd).abs().max() < 0.1
    assert (problem.family.variance(found).sqrt() / sd - 1).abs().max() < 0.1


@pytest.mark.parametrize("options", [{}, {"batch_size": 16}, {"batch_size": 16, "num_particles": 2}])
def test_executors_agree(options):
    solver = SVI(steps=40, window=20, local_reparameterisation=True, **options)
    run = {"solver": solver, "rounds": 2, "damping": 0.5}
    data = clients([20, 20, 33, 47])
    loop = pvi.fit(network, data, executor=Loop(), **run)
    batched = pvi.fit(network, data, executor=Vectorised(compile=False), **run)
    assert batched.settings["executor"] == "vectorised"
    torch.testing.assert_close(loop.posterior.natural, batched.posterior.natural, rtol=1e-7, atol=1e-7)


def test_gradients_are_quieter_so_that_fewer_steps_reach_further():
    """Mini-batches of a network: the free energy after the same number of steps, from the same starts."""
    data = clients([400])
    problem, prior = problem_of(network, *data[0])
    reached = {}
    for local in (False, True):
        solver = SVI(steps=300, window=100, batch_size=100, num_particles=1, local_reparameterisation=local)
        values = []
        for seed in range(3):
            natural, _ = solver.solve(problem, prior.natural, prior.natural, seed)
            values.append(expected_log_likelihood(problem, natural, num_samples=500).value)
        reached[local] = torch.tensor(values)
    assert reached[True].mean() > reached[False].mean()


def test_asking_for_layers_that_are_not_there_is_an_error():
    def no_layer(y):
        loc = pyro.sample("loc", dist.Normal(torch.zeros((), dtype=F64), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.StudentT(3.0, loc.exp(), 1.0), obs=y)

    data = [(torch.ones(5, dtype=F64),), (torch.ones(4, dtype=F64),)]
    for executor in (Loop(), Vectorised(compile=False)):
        with pytest.raises(ValueError, match="has nothing to draw row by row"):
            pvi.fit(no_layer, data, solver=SVI(local_reparameterisation=True), executor=executor, rounds=1)
