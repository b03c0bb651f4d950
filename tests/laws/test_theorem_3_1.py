"""Theorem 3.1: one gradient step at every client, synchronously, is one gradient step of global VI.

With q = exp(η·T - A) and F(η) the Fisher information, F_m has the slope ∇F_m(η_q) = ∇E_q[log p(y_m | θ)] - F(η_q) η_m
at the q that all clients were sent. A local step of size s in natural parameters makes the change Δ_m = s ∇F_m, and

    Σ_m ρ Δ_m = ρ s (Σ_m ∇E_q[log p(y_m | θ)] - F(η_q) (η_q - η_p)) = ρ s ∇F(η_q),

a global step of size ρ s: undamped (ρ = 1) of the same size, whatever the number of clients and the partition. It is
the sum of the changes that does this; averages would need a size M times as large. More than one local step breaks it.
The expectations are exact: the global trajectory below is autograd through one-dimensional quadrature over all rows.
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from laws.federations import MODELS, NOISE, designs, play, pooled, regression
from toy_programs import unknown_noise

from pvi.objectives import regulariser
from pvi.schedules import Asynchronous
from pvi.solvers import GradientAscent, SolverInfo

STEP = {"bernoulli": 0.02, "poisson": 2e-5, "gaussian": 0.004}
NODES = torch.linspace(-10, 10, 401, dtype=torch.float64)
WEIGHTS = torch.softmax(-0.5 * NODES.square(), 0)
"""The trapezoidal rule, exact to rounding for any predictor here."""
ROUNDS = 8


def expected(design, y, likelihood, mean, covariance):
    """Σ_i E_q[log p(y_i | θ)], constants left out."""
    loc, variance = design @ mean, ((design @ covariance) * design).sum(1)
    if likelihood == "poisson":
        return (y * loc - (loc + 0.5 * variance).exp()).sum()
    if likelihood == "gaussian":
        return -0.5 * ((y - loc).square() + variance).sum() / NOISE**2
    f = loc[:, None] + variance.sqrt()[:, None] * NODES
    return (y * loc).sum() - (torch.nn.functional.softplus(f) @ WEIGHTS).sum()


def moments(eta, size, full):
    """Mean and covariance from η: the bundled models' sites are weights and bias, each (h, -½ λ) under mean field."""
    if full:
        rows, columns = torch.tril_indices(size, size)
        lower = torch.zeros(size, size, dtype=eta.dtype).index_put((rows, columns), -eta[size:])
        covariance = torch.linalg.inv(lower + lower.mT)
        return covariance @ eta[:size], covariance
    k = size - 1
    h, halved = torch.cat([eta[:k], eta[2 * k : -1]]), torch.cat([eta[k : 2 * k], eta[-1:]])
    return h / (-2 * halved), torch.diag(1 / (-2 * halved))


def free_energy(eta, design, y, likelihood, full):
    """F(q) under the prior N(0, I), constants left out."""
    mean, covariance = moments(eta, design.shape[1], full)
    divergence = 0.5 * (covariance.trace() + mean.square().sum() - torch.logdet(covariance))
    return expected(design, y, likelihood, mean, covariance) - divergence


def ascent(data, likelihood, full, size, steps=ROUNDS):
    """η after each of some gradient steps of global VI from the prior."""
    design, y = (torch.as_tensor(part) for part in pooled(data))
    d = design.shape[1]
    k = d - 1
    if full:
        eta = torch.zeros(d + d * (d + 1) // 2, dtype=torch.float64)
        rows, columns = torch.tril_indices(d, d)
        eta[d:][rows == columns] = -0.5
    else:
        eta = torch.cat([torch.zeros(k), torch.full((k,), -0.5), torch.tensor([0.0, -0.5])]).double()
    for _ in range(steps):
        eta = eta + size * torch.func.grad(free_energy)(eta, design, y, likelihood, full)
        yield eta


@dataclass(frozen=True)
class GradientSteps:
    """Plain gradient ascent of F_m in natural parameters from the q that was sent."""

    likelihood: str
    full: bool
    size: float
    steps: int = 1
    name: str = "gradient steps"

    def solve(self, problem, cavity, start, seed):
        x, y = problem.batch.args
        ((design, targets),) = designs([(x, y)])
        design, targets = torch.as_tensor(design), torch.as_tensor(targets)

        def local(eta):
            found = moments(eta, design.shape[1], self.full)
            return expected(design, targets, self.likelihood, *found) + regulariser(problem.family, eta, cavity)

        eta = start
        for _ in range(self.steps):
            eta = eta + self.size * torch.func.grad(local)(eta)
        return eta, SolverInfo(self.steps, float("nan"), False, "")


def local_solver(kind, likelihood, full, size):
    """The library's, or this file's, which shares nothing with it but the regulariser."""
    return GradientAscent(learning_rate=size) if kind == "library" else GradientSteps(likelihood, full, size)


def close(state, eta):
    return torch.allclose(state.server.posterior.natural, eta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["library", "own"])
@pytest.mark.parametrize("damping", [1.0, 0.25])
@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_synchronous_steps_are_global_steps(likelihood, guide, damping, kind):
    """Local steps of size s / ρ, damped by ρ, are global steps of size s, in every round."""
    data, size, full = regression(likelihood), STEP[likelihood], guide == "full"
    solver = local_solver(kind, likelihood, full, size / damping)
    states = list(play(MODELS[likelihood], data, ROUNDS, guide=guide, damping=damping, solver=solver))
    assert all(state.history[-1].step_fraction == 1 and not state.history[-1].rejected for state in states)
    trajectory = list(ascent(data, likelihood, full, size))
    for state, eta in zip(states, trajectory, strict=True):
        assert close(state, eta)
    records = states[-1].history
    assert all(later.elbo > earlier.elbo for earlier, later in pairwise(records))
    assert all(record.max_delta > 1e-5 for record in records)  # ten thousand times what the comparison allows


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("likelihood", MODELS)
def test_the_algorithm_global_vi_takes_the_same_steps(likelihood, guide):
    data = regression(likelihood)
    solver = GradientAscent(learning_rate=STEP[likelihood])
    federated = play(MODELS[likelihood], data, ROUNDS, guide=guide, damping=1.0, solver=solver)
    alone = play(MODELS[likelihood], data, ROUNDS, guide=guide, algorithm="global-vi", solver=solver)
    for one, other in zip(federated, alone, strict=True):
        assert close(one, other.server.posterior.natural)
        assert one.history[-1].elbo == pytest.approx(other.history[-1].elbo, abs=1e-8)


def test_by_the_same_draws_it_holds_for_any_model():
    """No generalised linear model: all clients take the expectation over the same draws, and so does global VI."""
    y = torch.tensor([0.3, 1.9, -0.4, 1.1, 2.0, 0.6, 0.2], dtype=torch.float64)
    data = [(part,) for part in y.split([2, 4, 1])]
    solver = GradientAscent(learning_rate=0.005)
    federated = play(unknown_noise, data, ROUNDS, damping=1.0, solver=solver)
    alone = play(unknown_noise, data, ROUNDS, algorithm="global-vi", solver=solver)
    for one, other in zip(federated, alone, strict=True):
        assert close(one, other.server.posterior.natural)
        assert one.history[-1].max_delta > 1e-3


def test_the_partition_makes_no_difference():
    """Two clients, one a row, or asynchronous ones of one latency: the same trajectory."""
    data = regression("bernoulli", sizes=(16, 8))
    solver = GradientSteps("bernoulli", False, STEP["bernoulli"])
    whole = [torch.cat(parts) for parts in zip(*data, strict=True)]
    single = list(zip(*[part.split(1) for part in whole], strict=True))
    expected_states = list(ascent(data, "bernoulli", False, STEP["bernoulli"], 3))
    for clients, schedule in ((data, "synchronous"), (single, "synchronous"), (data, Asynchronous(latency=1.0))):
        states = play(MODELS["bernoulli"], clients, 3, schedule=schedule, damping=1.0, solver=solver)
        for state, eta in zip(states, expected_states, strict=True):
            assert close(state, eta)


def test_more_local_steps_or_turns_are_another_algorithm():
    """With two local steps, or one client after the other, the partition does influence the dynamics."""
    data = regression("bernoulli")
    solver = GradientSteps("bernoulli", False, STEP["bernoulli"], steps=2)
    (state,) = play(MODELS["bernoulli"], data, 1, damping=1.0, solver=solver)
    *_, eta = ascent(data, "bernoulli", False, STEP["bernoulli"], 2)
    assert (state.server.posterior.natural - eta).abs().max() > 1e-2
    solver = GradientSteps("bernoulli", False, STEP["bernoulli"])
    (state,) = play(MODELS["bernoulli"], data, 1, damping=1.0, solver=solver, schedule="sequential")
    (eta,) = ascent(data, "bernoulli", False, STEP["bernoulli"], 1)
    assert (state.server.posterior.natural - eta).abs().max() > 1e-2
