"""Alpha divergences: EP of the pooled rows whatever the split, PVI in the limit, one average factor, Rényi bound."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from oracles.federated import moments_of
from oracles.power_ep import power_ep
from oracles.stochastic_power_ep import stochastic_power_ep
from scipy import optimize
from toy_programs import F64, normal, problem_of

import pvi
from pvi.programs.program import log_likelihood
from pvi.solvers import SVI
from pvi.solvers.renyi import renyi_estimate

MIX = torch.tensor([[1.0, 0.6, 0.2], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]], dtype=F64)
X = normal(60, 3, seed=1) @ MIX
Y = (X @ torch.tensor([1.5, -1.0, 0.5], dtype=F64) + normal(60, seed=3) > 0).to(F64)
SORTED = torch.argsort(X[:, 0])
SPLITS = {"uneven": torch.arange(60).split([8, 35, 17]), "sorted": SORTED.split(20)}
GUIDES = [(None, "diagonal"), ("full", "full")]


def logistic(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def probit(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    eta = pyro.deterministic("linear_predictor", x @ weights)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(probs=torch.special.ndtr(eta)), obs=y)


def linear(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)


def clients(split):
    return [(X[rows], Y[rows]) for rows in split]


def distance(result, natural):
    """The largest difference of a mean, in standard deviations, or of a log standard deviation."""
    mean, variance = moments_of(natural)
    sd = np.sqrt(np.diag(variance) if variance.ndim == 2 else variance)
    loc = (result.posterior.mean["weights"].numpy() - mean) / sd
    scale = np.log(result.posterior.sd["weights"].numpy() / sd)
    return max(np.abs(loc).max(), np.abs(scale).max())


def by_hand(result):
    """q of a result in the oracles' terms."""
    mean, sd = result.posterior.mean["weights"].numpy(), result.posterior.sd["weights"].numpy()
    return mean / sd**2, sd**-2


@pytest.mark.parametrize("split", ["uneven", pytest.param("sorted", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("guide", "covariance"), GUIDES)
@pytest.mark.parametrize(("model", "likelihood"), [(logistic, "bernoulli"), (probit, "probit")])
def test_ep_of_three_clients_is_ep_of_the_pooled_rows(model, likelihood, guide, covariance, split):
    want = power_ep(X.numpy(), Y.numpy(), 1.0, likelihood, covariance=covariance)
    rounds = 8 if guide == "full" else 20
    result = pvi.fit(
        model, clients(SPLITS[split]), guide=guide, algorithm="power-ep", schedule="sequential", damping=1.0,
        rounds=rounds,
    )  # fmt: skip
    assert result.settings["solver"] == "RowEP"
    assert all(visit.solver.converged for visit in result.history[-1].clients.values())
    assert distance(result, want.posterior) < 1e-6


@pytest.mark.parametrize("damping", [pytest.param(0.2, marks=pytest.mark.slow), 0.5])
def test_synchronous_rounds_have_the_same_fixed_point(damping):
    want = power_ep(X.numpy(), Y.numpy(), 0.5)
    result = pvi.fit(
        logistic, clients(SPLITS["sorted"]), guide="full", algorithm=pvi.PowerEP(alpha=0.5), damping=damping, rounds=25
    )
    assert result.settings["alpha"] == 0.5
    assert distance(result, want.posterior) < (0.02 if damping == 0.2 else 1e-5)  # the rest of a slow transient


def test_the_elbo_of_the_history_is_still_the_variational_one():
    """F(q) at EP's fixed point: below F at PVI's, whose maximum it is."""
    data = clients(SPLITS["uneven"])
    ends = [
        pvi.fit(logistic, data, guide="full", algorithm=algorithm, schedule="sequential", damping=1.0, rounds=8)
        for algorithm in ("power-ep", "pvi")
    ]
    assert ends[1].elbo - 0.01 < ends[0].elbo < ends[1].elbo - 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("guide", [None, "full"])
def test_fixed_points_tend_to_those_of_pvi(guide):
    """Theorem 4.1: the distance falls with alpha, in proportion to it."""
    data = [(X[:14], Y[:14]), (X[14:24], Y[14:24])]
    settings = {"guide": guide, "schedule": "sequential", "damping": 1.0, "rounds": 8 if guide else 24}
    limit = by_hand(pvi.fit(logistic, data, algorithm="pvi", solver=pvi.solvers.Newton(tolerance=1e-9), **settings))
    apart = [distance(pvi.fit(logistic, data, algorithm=pvi.PowerEP(a), **settings), limit) for a in (0.1, 0.01, 0.001)]
    assert apart[0] < 0.1
    assert apart[0] / apart[1] == pytest.approx(10, rel=0.2)
    assert apart[1] / apart[2] == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("algorithm", [pvi.PowerEP(1.0), pvi.PowerEP(0.3)], ids=["1", "0.3"])
def test_conjugate_models_are_exact_for_every_alpha(algorithm):
    y = X @ torch.tensor([1.0, 0.0, -1.0], dtype=F64) + normal(60, seed=8)
    precision = torch.eye(3, dtype=F64) + X.mT @ X
    data = [(X[:25], y[:25]), (X[25:], y[25:])]
    result = pvi.fit(linear, data, guide="full", algorithm=algorithm, damping=1.0, rounds=1)
    assert distance(result, ((X.mT @ y).numpy(), precision.numpy())) < 1e-8


@pytest.mark.parametrize(("guide", "covariance"), GUIDES)
def test_stochastic_ep_keeps_one_average_factor(guide, covariance):
    """Against its oracle, which is not EP; synchronous and damped it is averaged EP."""
    data = [(X[i : i + 1], Y[i : i + 1]) for i in range(4)]
    arrays = [(x.numpy(), y.numpy()) for x, y in data]
    result = pvi.fit(logistic, data, guide=guide, algorithm="stochastic-ep", rounds=15)
    assert distance(result, stochastic_power_ep(arrays, covariance=covariance).posterior) < 1e-5
    exact = power_ep(X[:4].numpy(), Y[:4].numpy(), covariance=covariance).posterior
    assert 1e-3 < distance(result, exact) < 0.5
    result = pvi.fit(
        logistic, data, guide=guide, algorithm="stochastic-ep", schedule="synchronous", damping=0.5, rounds=20
    )
    want = stochastic_power_ep(arrays, covariance=covariance, averaged=True).posterior
    assert distance(result, want) < 1e-4


@pytest.mark.parametrize("number", [1, 3])
def test_stochastic_ep_of_identical_clients_is_ep(number):
    want = power_ep(np.tile(X[:12].numpy(), (number, 1)), np.tile(Y[:12].numpy(), number), 0.5)
    result = pvi.fit(
        logistic, [(X[:12], Y[:12])] * number, guide="full", algorithm=pvi.StochasticEP(alpha=0.5), rounds=16
    )
    assert distance(result, want.posterior) < 1e-6


SKEW_X, SKEW_Y = 3 * normal(6, 1, seed=1).abs(), torch.tensor([1.0, 1, 1, 0, 1, 1], dtype=F64)
GRID = np.linspace(-12, 14, 20_001)


def skewed():
    """One latent, its tilted distribution skewed; log density on the grid."""
    problem, prior = problem_of(logistic, SKEW_X, SKEW_Y)
    sign = (2 * SKEW_Y - 1).numpy()
    logs = -0.5 * GRID**2 - 0.5 * np.log(2 * np.pi)
    logs -= np.logaddexp(0, -sign * SKEW_X[:, 0].numpy() * GRID[:, None]).sum(1)
    return problem, prior, logs


def normal_logs(mean, sd):
    return -0.5 * ((GRID - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


def integral(logs):
    return np.exp(logs).sum() * (GRID[1] - GRID[0])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_draws_find_the_maximum_of_the_renyi_bound(alpha):
    """By quadrature for alpha = 0.5; at alpha = 1 the moments of the tilted distribution."""
    problem, prior, logs = skewed()
    if alpha == 1:
        weights = np.exp(logs) / np.exp(logs).sum()
        mean = weights @ GRID
        sd = np.sqrt(weights @ (GRID - mean) ** 2)
    else:

        def loss(v):
            return -np.log(integral(alpha * logs + (1 - alpha) * normal_logs(v[0], np.exp(v[1])))) / alpha

        found = optimize.minimize(loss, [0.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14})
        mean, sd = found.x[0], np.exp(found.x[1])
    ends = []
    for seed in range(4):
        solver = SVI(steps=600, learning_rate=0.1, num_particles=256, window=40)
        natural, _ = solver.solve(problem._replace(alpha=alpha), prior.natural, prior.natural, seed)
        loc, scale = problem.family.standard(natural).values()
        ends.append([(loc.item() - mean) / sd, np.log(scale.item() / sd)])
    error = np.std(ends, 0, ddof=1) / 2
    assert error.max() < 0.01
    # Six pooled degrees of freedom; the bias of 256 draws is far below it.
    assert np.abs(np.mean(ends, 0)).max() < 6 * np.sqrt((error**2).mean())


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_gradients_of_the_bound_are_those_of_the_divergence(alpha):
    """(E_r[T] - E_q[T]) / alpha by quadrature, r ∝ q w^alpha, chained through (mean, log sd), at a q that is off."""
    problem, prior, logs = skewed()
    problem, family = problem._replace(alpha=alpha), problem.family
    free = torch.tensor([0.2, np.log(0.5)], dtype=F64)
    q = normal_logs(0.2, 0.5)
    tilted = alpha * logs + (1 - alpha) * q
    weights = np.exp(tilted) / np.exp(tilted).sum()
    statistics = torch.as_tensor(np.array([weights @ GRID, weights @ GRID**2]))
    jacobian = torch.func.jacrev(family.natural_from_free)(free)
    want = jacobian.mT @ (statistics - family.mean_parameters(family.natural_from_free(free))) / alpha
    generator = torch.Generator().manual_seed(5)

    def bound(free):
        natural = family.natural_from_free(free)
        x = family.sample(natural, (500,), generator)
        return renyi_estimate(
            problem, prior.natural, natural, x, lambda x: log_likelihood(problem.program, x, problem.batch)
        )

    found = torch.stack([torch.func.grad(bound)(free) for _ in range(100)])
    error = found.std(0) / 10
    assert bool(((found.mean(0) - want).abs() < 5 * error).all()), (found.mean(0), want, error)
    value = torch.stack([bound(free) for _ in range(100)])
    # The cavity counts as exp(η·T): the prior's constant is missing.
    expected = np.log(integral(tilted)) / alpha + family.log_partition(prior.natural).item()
    assert value.mean().item() == pytest.approx(expected, abs=5 * value.std().item() / 10)


@pytest.mark.parametrize(("guide", "covariance"), GUIDES)
def test_private_latents_are_those_of_ep_on_all_latents(guide, covariance):
    """Random intercepts that stay with their clients, against EP over (weights, bias, intercepts) of all rows."""
    data = clients(torch.arange(40).split([12, 28]))
    design = torch.cat([X[:40], torch.ones(40, 1, dtype=F64), torch.eye(2, dtype=F64).repeat_interleave(
        torch.tensor([12, 28]), 0)], 1)  # fmt: skip
    want = power_ep(design.numpy(), Y[:40].numpy(), 1.0, covariance=covariance)
    result = pvi.fit(
        "mixed_logistic_regression", data, guide=guide, algorithm="power-ep", schedule="sequential", damping=1.0,
        rounds=20 if guide is None else 10,
    )  # fmt: skip
    assert result.settings["solver"] == "RowEP"
    mean, variance = moments_of(want.posterior)
    sd = np.sqrt(np.diag(variance) if variance.ndim == 2 else variance)
    found = [result.posterior.mean["weights"], result.posterior.mean["bias"][None]]
    found += [result.private[f"client {k}"].mean["effect"][None] for k in (0, 1)]
    assert np.abs((torch.cat(found).numpy() - mean) / sd).max() < 1e-5
    spread = [result.posterior.sd["weights"], result.posterior.sd["bias"][None]]
    spread += [result.private[f"client {k}"].sd["effect"][None] for k in (0, 1)]
    assert np.abs(torch.cat(spread).numpy() / sd - 1).max() < 1e-5


@pytest.mark.slow
def test_one_factor_a_client_gives_mean_field_the_exact_marginals():
    """A correlated Gaussian posterior: alpha = 1 has its marginal variances, where KL has conditional ones."""
    y = X @ torch.tensor([1.0, 0.0, -1.0], dtype=F64) + normal(60, seed=8)
    x = X[:, :2]
    problem, prior = problem_of(linear, x, y)
    covariance = torch.linalg.inv(torch.eye(2, dtype=F64) + x.mT @ x)
    exact, conditional = covariance.diagonal().sqrt(), torch.linalg.inv(covariance).diagonal().rsqrt()
    assert (exact / conditional).min() > 1.1
    solver = SVI(steps=600, learning_rate=0.1, num_particles=512, window=40)
    start, _ = solver.solve(problem, prior.natural, prior.natural, 0)
    ends = [solver.solve(problem._replace(alpha=1.0), prior.natural, start, seed)[0] for seed in range(4)]
    off = torch.stack([(problem.family.variance(end).sqrt() / exact).log() for end in ends])
    assert off.std(0).max() < 0.02
    assert off.mean(0).abs().max() < 6 * off.std(0).square().mean().sqrt() / 2


def test_a_model_that_is_no_glm_runs_on_draws():
    """Unknown location and scale."""

    def model(y):
        loc = pyro.sample("loc", dist.Normal(0.0, 2.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.StudentT(3.0, loc, scale), obs=y)

    result = pvi.fit(model, [(1 + normal(12, seed=9),)], algorithm="power-ep", damping=1.0, rounds=1)
    assert result.settings["solver"] == "SVI"
    assert np.isfinite(result.elbo)
