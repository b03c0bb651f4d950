"""Plain Adam: all steps at one learning rate, the last iterate, and the same answer under every executor."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, normal, problem_of

import pvi
from pvi.executors import Loop, Vectorised
from pvi.progress import describe
from pvi.solvers import SVI
from pvi.solvers.draws import minibatches, noise, noise_generator, row_generator

RATE, STEPS, ROWS, PARTICLES, SEED = 0.03, 25, 8, 3, 11


def robust(y):
    """A location and a positive scale, no generalised linear model: two latents, unconstrained by a logarithm."""
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    scale = pyro.sample("scale", dist.LogNormal(y.new_zeros(()), 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)


def network(x, y):
    def weights(name, *shape):
        return pyro.sample(name, dist.Normal(x.new_zeros(shape), 1.0).to_event(len(shape)))

    hidden = torch.tanh(torch.nn.functional.linear(x, weights("first", 4, 2), weights("first_bias", 4)))
    f = torch.nn.functional.linear(hidden, weights("second", 1, 4), weights("second_bias", 1))[:, 0]
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def by_hand(y, steps):
    """torch.optim.Adam on a mean and a log standard deviation a site, at the solver's draws; and -F_m at each step."""
    prior_sd = torch.tensor([1.0, 0.5], dtype=F64)
    free = torch.stack([torch.zeros(2, dtype=F64), prior_sd.log()], 1).requires_grad_()
    optimiser = torch.optim.Adam([free], lr=RATE)
    rows = minibatches(len(y), ROWS, row_generator(SEED, y.device))
    numbers = noise(PARTICLES, 2, noise_generator(SEED, y.device), y)
    losses = []
    for _, chosen, eps in zip(range(steps), rows, numbers, strict=False):
        loc, sd = free[:, 0], free[:, 1].exp()
        x = loc + sd * eps
        likelihood = dist.StudentT(4.0, x[:, :1], x[:, 1:].exp()).log_prob(y[chosen]).sum(1).mean() * len(y) / ROWS
        divergence = ((sd / prior_sd) ** 2 + (loc / prior_sd) ** 2 - 1).sum() / 2 - (sd / prior_sd).log().sum()
        loss = divergence - likelihood
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return free.detach().flatten(), losses


@pytest.mark.parametrize("steps", [1, STEPS])
def test_it_is_the_last_iterate_of_torchs_adam(steps):
    y = 0.5 + normal(30, seed=2)
    problem, prior = problem_of(robust, y)
    # A window that does not divide the steps, and cuts that an ordinary solve would make.
    solver = SVI(steps=steps, learning_rate=RATE, batch_size=ROWS, num_particles=PARTICLES, window=4, plain=True)
    natural, info = solver.solve(problem, prior.natural, prior.natural, SEED)
    expected, losses = by_hand(y, steps)
    torch.testing.assert_close(problem.family.free(natural), expected, rtol=1e-9, atol=1e-9)
    last = len(losses) - 1 - (len(losses) - 1) % 4
    # The cavity, not the normalised prior, enters F_m: it differs by the prior's log-normaliser.
    constant = problem.family.log_partition(prior.natural).item()
    assert info.free_energy == pytest.approx(constant - sum(losses[last:]) / len(losses[last:]), rel=1e-9)
    assert (info.steps, info.converged, info.message) == (steps, True, "")


def test_nothing_ends_it_early():
    """An ordinary solve of the same has made all its cuts by then."""
    problem, prior = problem_of(robust, 0.5 + normal(30, seed=2))
    options = {"steps": 300, "window": 3, "learning_rate": 0.2}
    _, adaptive = SVI(**options).solve(problem, prior.natural, prior.natural, 0)
    _, info = SVI(plain=True, **options).solve(problem, prior.natural, prior.natural, 0)
    assert adaptive.steps < 300
    assert info.steps == 300


def test_executors_agree_on_clients_of_unequal_size():
    """Clients end at different steps; the last iterates are theirs, and nobody is said not to have converged."""
    data = [(0.5 + normal(n, seed=n),) for n in (9, 16, 30, 47)]
    solver = SVI(epochs=3, learning_rate=RATE, batch_size=8, num_particles=2, window=3, plain=True)
    run = {"solver": solver, "rounds": 2, "damping": 0.4}
    loop = pvi.fit(robust, data, executor=Loop(), **run)
    batched = pvi.fit(robust, data, executor=Vectorised(compile=False), **run)
    assert batched.settings["executor"] == "vectorised"
    torch.testing.assert_close(loop.posterior.natural, batched.posterior.natural, rtol=1e-9, atol=1e-9)
    for one, two in zip(loop.history, batched.history, strict=True):
        assert {name: visit.solver.steps for name, visit in one.clients.items()} == {
            f"client {k}": solver.num_steps(len(y)) for k, (y,) in enumerate(data)
        }
        for name, visit in one.clients.items():
            assert visit.solver._replace(free_energy=0.0) == two.clients[name].solver._replace(free_energy=0.0)
            assert visit.solver.free_energy == pytest.approx(two.clients[name].solver.free_energy, rel=1e-7)
        assert one.unconverged == two.unconverged == {}
        assert "not converged" not in describe(one)


def test_executors_agree_with_layers_drawn_by_row():
    x = normal(60, 2, seed=3)
    y = (x[:, 0] * x[:, 1] > 0).to(F64)
    data = [(x[:20], y[:20]), (x[20:], y[20:])]
    solver = SVI(steps=6, window=5, batch_size=10, local_reparameterisation=True, plain=True)
    run = {"solver": solver, "rounds": 2, "damping": 0.4}
    loop = pvi.fit(network, data, executor=Loop(), **run)
    batched = pvi.fit(network, data, executor=Vectorised(compile=False), **run)
    assert batched.settings["executor"] == "vectorised"
    torch.testing.assert_close(loop.posterior.natural, batched.posterior.natural, rtol=1e-7, atol=1e-7)


def test_it_serves_alpha_divergences():
    problem, prior = problem_of(robust, 0.5 + normal(30, seed=2))
    solver = SVI(steps=20, num_particles=4, window=7, plain=True)
    plain, info = solver.solve(problem._replace(alpha=0.5), prior.natural, prior.natural, 0)
    assert (info.steps, info.converged, info.message) == (20, True, "")
    assert not torch.equal(plain, solver.solve(problem, prior.natural, prior.natural, 0)[0])
