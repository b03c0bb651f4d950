"""pFedBayes: its objective, its two levels, its averages, what stays with the clients."""

import itertools
import math
from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.nn.functional import softplus

import pvi
from pvi.aggregators import MomentAverage, ParameterAverage
from pvi.client import ClientState, Update
from pvi.factors import Factor
from pvi.families import DiagonalGaussian, Product
from pvi.families.mean_field import divergence, inverse_softplus, natural_from_moments
from pvi.models import linear_regression, logistic_regression
from pvi.schedules import SubsetAfterTraining
from pvi.server import ServerState
from pvi.solvers import Given, TwoLevel
from pvi.solvers.rule import Begun
from pvi.solvers.two_level import parameters
from pvi.start import start

NOISE = 0.5
MODEL = partial(linear_regression.model, noise_scale=NOISE)
DOUBLE = torch.float64


def regression(seed=0, n=30, features=2, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=generator, dtype=DOUBLE)
    slope = torch.tensor([1.0, -2.0, 0.5][:features], dtype=DOUBLE) + shift
    return x, x @ slope + 0.3 + NOISE * torch.randn(n, generator=generator, dtype=DOUBLE)


def problem_of(data, algorithm="pvi"):
    """A client's problem and the run's start."""
    _, state = start(
        MODEL, {"a": data}, None, algorithm, None, None, 1, None, "loop", 0, "cpu", None
    )  # fmt: skip
    return state.problem.clients["a"], state.server.posterior


def design(x):
    """Columns in the order of the latents: weights, then bias."""
    return torch.cat([x, x.new_ones(len(x), 1)], 1)


def matched_noise(size):
    """2 size points with mean 0 and covariance I: expectations of quadratic functions are exact."""
    eye = math.sqrt(size) * torch.eye(size, dtype=DOUBLE)
    return torch.cat([eye, -eye])


def likelihood_of(data):
    """The linear regression's log likelihood, written out."""
    x, y = data
    matrix = design(x)
    return lambda loc, sd: lambda theta: dist.Normal(matrix @ theta, NOISE).log_prob(y).sum()


def prior_w(size=3):
    return torch.tensor([0.2, -0.1, 0.4], dtype=DOUBLE)[:size], torch.tensor([0.7, 1.2, 0.5], dtype=DOUBLE)[:size]


def given(w):
    """A client's first visit, with what it is told of the whole left out."""
    return Given(w, None, None, 0)


def begun_at(problem, loc, scale, solver, rows=30):
    w = natural_from_moments(problem.family, loc, scale)
    return solver.begin(problem, given(w), rows)


def test_the_personal_optimum_is_ordinary_variational_inference():
    """ζ = 1, w fixed: mean-field q has the exact posterior's mean and the diagonal of its precision, to 1e-6."""
    data = regression()
    problem, _ = problem_of(data)
    solver = TwoLevel(
        zeta=1.0, num_particles=6, batch_size=None, optimiser="sgd", learning_rate=6e-3, global_learning_rate=0.0
    )
    loc, scale = prior_w()
    begun = begun_at(problem, loc, scale, solver)
    for _ in range(2000):
        state, _ = solver.step(problem, begun, matched_noise(3), likelihood_of(data))
        begun = begun._replace(state=state)
    matrix, precision = design(data[0]), scale**-2
    exact = torch.diag(precision) + matrix.T @ matrix / NOISE**2
    mean = torch.linalg.solve(exact, precision * loc + matrix.T @ data[1] / NOISE**2)
    v, w = begun.state[:2]
    torch.testing.assert_close(v[0], mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(softplus(v[1]), exact.diagonal() ** -0.5, rtol=0, atol=1e-6)
    torch.testing.assert_close(w, torch.stack([loc, inverse_softplus(scale)]), rtol=0, atol=1e-12)


def test_tempering_by_zeta():
    """ζ: the optimum for a likelihood to the power 1/ζ."""
    data, zeta = regression(), 4.0
    problem, _ = problem_of(data)
    solver = TwoLevel(zeta=zeta, batch_size=None, optimiser="sgd", learning_rate=6e-3, global_learning_rate=0.0)
    loc, scale = prior_w()
    begun = begun_at(problem, loc, scale, solver)
    for _ in range(2000):
        state, _ = solver.step(problem, begun, matched_noise(3), likelihood_of(data))
        begun = begun._replace(state=state)
    matrix = design(data[0])
    exact = torch.diag(scale**-2) + matrix.T @ matrix / NOISE**2 / zeta
    torch.testing.assert_close(softplus(begun.state[0][1]), exact.diagonal() ** -0.5, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_one_client_with_w_fixed_reaches_global_vi():
    """From the command of a user, with draws and mini-batches: q_1 is the posterior under the prior w = p."""
    data = regression(n=200)
    reference = pvi.fit(MODEL, {"a": data}, algorithm="global-vi")
    algorithm = pvi.PFedBayes(
        zeta=1.0, global_learning_rate=0.0, initial_rho=None, num_particles=20, learning_rate=0.01, batch_size=None
    )
    together = pvi.executors.Vectorised(compile=False)
    result = pvi.fit(MODEL, {"a": data}, algorithm=algorithm, rounds=200, executor=together)
    own = result.personal["a"]
    torch.testing.assert_close(result.posterior.natural, result.prior.natural, rtol=1e-9, atol=1e-9)
    for site in own.site_names:
        away = (own.mean[site] - reference.posterior.mean[site]).abs() / reference.posterior.sd[site]
        assert away.max() < 0.2
        assert (own.sd[site] / reference.posterior.sd[site]).log().abs().max() < 0.15


def test_draws_are_standard_normal_and_rho_hears_the_likelihood():
    """∂/∂ρ of -E log p is σ σ' Σ_j x_jk² / s², in expectation over the draws; means' gradients likewise."""
    data = regression()
    problem, _ = problem_of(data)
    solver = TwoLevel(
        zeta=0.0, num_particles=400, batch_size=None, optimiser="sgd", learning_rate=1.0, global_learning_rate=0.0
    )
    loc, scale = prior_w()
    begun = begun_at(problem, loc, scale, solver)
    generator = torch.Generator().manual_seed(3)
    moves = []
    for _ in range(40):
        numbers = torch.randn(400, 3, generator=generator, dtype=DOUBLE)
        state, _ = solver.step(problem, begun, numbers, likelihood_of(data))
        moves.append(begun.state[0] - state[0])
    moves = torch.stack(moves)
    matrix, rho = design(data[0]), inverse_softplus(scale)
    expected_rho = scale * torch.sigmoid(rho) * matrix.square().sum(0) / NOISE**2
    expected_loc = matrix.T @ (matrix @ loc - data[1]) / NOISE**2
    error = moves.std(0) / math.sqrt(len(moves))
    assert ((moves.mean(0) - torch.stack([expected_loc, expected_rho])).abs() < 5 * error).all()


def test_noise_of_the_gradient_falls_with_the_root_of_k():
    data = regression()
    problem, _ = problem_of(data)
    loc, scale = prior_w()
    spread = {}
    for particles in (1, 4, 16):
        solver = TwoLevel(num_particles=particles, batch_size=None, optimiser="sgd", learning_rate=1.0)
        begun = begun_at(problem, loc, scale, solver)
        generator = torch.Generator().manual_seed(particles)
        moves = []
        for _ in range(400):
            numbers = torch.randn(particles, 3, generator=generator, dtype=DOUBLE)
            moves.append(solver.step(problem, begun, numbers, likelihood_of(data))[0][0])
        spread[particles] = torch.stack(moves).std(0)
    relative = 1 / math.sqrt(2 * 400)
    for few, many in itertools.pairwise(spread):
        ratio = spread[few] / spread[many]
        assert ((ratio - 2).abs() < 5 * 2 * math.sqrt(2) * relative * 1.5).all(), ratio  # heavier tails for ρ: 1.5


def test_local_iterations_alternate():
    """Two iterations are q, w, q, w, each at the other's newest value: written out by hand."""
    data = regression()
    problem, _ = problem_of(data)
    rate, rate_w, zeta = 1e-3, 5e-3, 3.0
    solver = TwoLevel(
        zeta=zeta, num_particles=2, batch_size=None, optimiser="sgd", learning_rate=rate, global_learning_rate=rate_w
    )
    loc, scale = prior_w()
    begun = begun_at(problem, loc, scale, solver)
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(2, 3, generator=generator, dtype=DOUBLE) for _ in range(2)]
    v, w = (begun.state[0] + 0.1).clone(), begun.state[1].clone()
    begun = Begun((v, w), begun.fixed)
    matrix = design(data[0])
    for numbers in noise:
        state, _ = solver.step(problem, begun, numbers, likelihood_of(data))
        begun = begun._replace(state=state)
        q = v.clone().requires_grad_()
        theta = q[0] + softplus(q[1]) * numbers
        log_p = dist.Normal(theta @ matrix.T, NOISE).log_prob(data[1]).sum(-1).mean()
        kl = torch.distributions.kl_divergence(
            torch.distributions.Normal(q[0], softplus(q[1])), torch.distributions.Normal(w[0], softplus(w[1]))
        ).sum()
        (gradient,) = torch.autograd.grad(zeta * kl - log_p, q)
        v = v - rate * gradient
        own = w.clone().requires_grad_()
        kl = torch.distributions.kl_divergence(
            torch.distributions.Normal(v[0], softplus(v[1])), torch.distributions.Normal(own[0], softplus(own[1]))
        ).sum()
        w = w - rate_w * torch.autograd.grad(kl, own)[0]
    torch.testing.assert_close(begun.state[0], v, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(begun.state[1], w, rtol=1e-10, atol=1e-12)


def gaussians(count=5, size=7, seed=1):
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(count, size, generator=generator, dtype=DOUBLE)
    return loc, 0.2 + torch.rand(count, size, generator=generator, dtype=DOUBLE)


def answers_of(loc, scale, coordinates=None):
    """w, and the clients' changes that lead from it to the q_i."""
    family = Product(("a", "b"), (DiagonalGaussian(3), DiagonalGaussian(loc.shape[1] - 3)))
    naturals = natural_from_moments(family, loc, scale)
    w = pvi.Posterior(
        family, natural_from_moments(family, torch.zeros_like(loc[0]), torch.ones_like(loc[0])), coordinates
    )
    return w, [Factor(family, natural - w.natural, loc.new_zeros(())) for natural in naturals]


def summed_divergence(posterior, loc, scale):
    mean, variance = posterior.family.moments(posterior.natural)
    return sum(divergence(m, s, mean, variance.sqrt()) for m, s in zip(loc, scale, strict=True)).item()


def test_average_of_moments_is_the_closed_form_and_the_optimum():
    loc, scale = gaussians()
    w, deltas = answers_of(loc, scale)
    equal = [1 / len(deltas)] * len(deltas)
    moments, fraction = MomentAverage()(w, deltas, equal)
    mean, variance = moments.family.moments(moments.natural)
    assert fraction == 1
    torch.testing.assert_close(mean, loc.mean(0), rtol=0, atol=1e-10)
    torch.testing.assert_close(variance, (scale**2 + loc**2).mean(0) - loc.mean(0) ** 2, rtol=0, atol=1e-10)
    best = summed_divergence(moments, loc, scale)
    parameters_, _ = ParameterAverage()(w, deltas, equal)
    assert best < summed_divergence(parameters_, loc, scale) - 1e-3
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        nudge = 1 + 1e-3 * torch.randn(2, len(mean), generator=generator, dtype=DOUBLE)
        near = natural_from_moments(moments.family, mean * nudge[0], variance.sqrt() * nudge[1])
        assert best < summed_divergence(pvi.Posterior(moments.family, near, None), loc, scale)


def test_average_of_parameters_and_smoothing():
    loc, scale = gaussians()
    w, deltas = answers_of(loc, scale)
    equal = [1 / len(deltas)] * len(deltas)
    found, _ = ParameterAverage(0.3)(w, deltas, equal)
    mean, variance = found.family.moments(found.natural)
    rho = 0.7 * inverse_softplus(torch.ones(7, dtype=DOUBLE)) + 0.3 * inverse_softplus(scale).mean(0)
    torch.testing.assert_close(mean, 0.3 * loc.mean(0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(variance.sqrt(), softplus(rho), rtol=1e-10, atol=1e-12)
    assert ParameterAverage()(w, [], [])[0] is w
    assert MomentAverage(0.5)(w, [], [])[0] is w


def logistic_clients(count=3, n=40):
    generator = torch.Generator().manual_seed(0)
    found = {}
    for k in range(count):
        x = torch.randn(n + 7 * k, 2, generator=generator, dtype=DOUBLE)
        probability = torch.sigmoid(x @ torch.tensor([1.0 + k, -1.0], dtype=DOUBLE))
        found[f"c{k}"] = x, (torch.rand(len(x), generator=generator, dtype=DOUBLE) < probability).double()
    return found


FAST = {"local_iterations": 5, "batch_size": 16, "learning_rate": 0.02, "global_learning_rate": 0.01, "zeta": 1.0}


@pytest.mark.parametrize("average", ["parameters", "moments"])
@pytest.mark.parametrize("more", [{}, {"subset": 2, "keep_optimisers": False, "personal_init": "draw"}])
def test_executors_agree(average, more):
    found = [
        pvi.fit(
            logistic_regression.model, logistic_clients(), algorithm=pvi.PFedBayes(**FAST, average=average, **more),
            rounds=3, executor=executor,
        )
        for executor in ("loop", pvi.executors.Vectorised(compile=False))
    ]  # fmt: skip
    loop, together = found
    torch.testing.assert_close(together.posterior.natural, loop.posterior.natural, rtol=1e-10, atol=1e-10)
    for name, own in loop.personal.items():
        torch.testing.assert_close(together.personal[name].natural, own.natural, rtol=1e-10, atol=1e-10)
    assert together.elbo == pytest.approx(loop.elbo, abs=1e-8)
    assert "vectorised" in together.settings["executor"]


def test_layers_drawn_by_row_have_the_same_expectation():
    """Local reparameterisation: the same Ω in expectation, so that long runs end at the same place."""
    from pvi.models import bayesian_mlp

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=DOUBLE)
    clients = {"a": (x, x[:, 0] - x[:, 1])}
    model = partial(bayesian_mlp.model, hidden=4, noise_scale=0.3)
    guide = bayesian_mlp.mean_field_guide(model, loc_range=0.5, variance=0.1)
    ends = {}
    for local in (False, True):
        algorithm = pvi.PFedBayes(local_iterations=1, num_particles=2000, batch_size=None, learning_rate=0.0,
                                  global_learning_rate=0.0, local_reparameterisation=local, zeta=1.0)  # fmt: skip
        result = pvi.fit(model, clients, guide, algorithm=algorithm, rounds=1, elbo_samples=4000)
        ends[local] = result.history[-1].clients["a"].solver.free_energy
        assert ends[local] == pytest.approx(result.elbo, rel=0.05)
    assert ends[True] == pytest.approx(ends[False], rel=0.05)


def test_personal_posteriors_stay_and_subsets_are_drawn_after_training():
    """All clients learn in every round; w is that of those asked; what the others have learned is not lost."""
    clients = logistic_clients()
    runs = list(pvi.fit_rounds(logistic_regression.model, clients, algorithm=pvi.PFedBayes(**FAST, subset=1), rounds=3))
    schedule = SubsetAfterTraining(1)
    for index, result in enumerate(runs):
        (asked,) = list(schedule.events(tuple(clients), index))[1].asked
        last = result.history[-1]
        assert last.communications == 3 + 1
        assert sorted(last.clients) == sorted(clients)
        assert all(info.rejected == "" for info in last.clients.values())
        alone = next(
            one for one in pvi.fit_rounds(
                logistic_regression.model, clients, algorithm=pvi.PFedBayes(**FAST, subset=1), rounds=index + 1
            ) if one.history[-1].number == index + 1
        )  # fmt: skip
        torch.testing.assert_close(alone.posterior.natural, result.posterior.natural)
        for name in clients:
            before = runs[index - 1].personal[name].natural if index else None
            own = result.personal[name].natural
            if before is not None:  # moved, by a few small steps from where it was, whether it was asked or not
                step = (parameters_of(result, own) - parameters_of(result, before)).abs().max().item()
                assert 1e-4 < step <= 5 * 0.02 * 1.5, (name, name == asked)


def parameters_of(result, natural):
    loc, variance = result.posterior.family.moments(natural)
    return torch.stack([loc, inverse_softplus(variance.sqrt())])


def test_the_global_model_is_the_answer_of_the_only_client_asked():
    """S = 1, β = 1: w ends where that client's localised w ended, whatever the others did."""
    clients = logistic_clients()
    (asked,) = list(SubsetAfterTraining(1).events(tuple(clients), 0))[1].asked
    algorithm = pvi.PFedBayes(**FAST, subset=1)
    together = pvi.fit(logistic_regression.model, clients, algorithm=algorithm, rounds=1)
    others = {name: data if name == asked else (data[0], 1 - data[1]) for name, data in clients.items()}
    changed = pvi.fit(logistic_regression.model, others, algorithm=algorithm, rounds=1)
    torch.testing.assert_close(changed.posterior.natural, together.posterior.natural, rtol=0, atol=0)
    assert any(
        not torch.equal(changed.personal[n].natural, together.personal[n].natural) for n in clients if n != asked
    )


def test_moments_go_with_exact_localised_problems():
    clients = logistic_clients()
    result = pvi.fit(logistic_regression.model, clients, algorithm=pvi.PFedBayes(**FAST, average="moments"), rounds=2)
    family = result.posterior.family
    moments = [family.moments(own.natural) for own in result.personal.values()]
    loc, variance = (torch.stack(parts) for parts in zip(*moments, strict=True))
    mean, spread = family.moments(result.posterior.natural)
    torch.testing.assert_close(mean, loc.mean(0), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(spread, (variance + loc**2).mean(0) - loc.mean(0) ** 2, rtol=1e-8, atol=1e-10)


def test_the_reported_free_energy():
    """Σ_i (E_{q_i}[log p(y_i)] - ζ KL(q_i, w)), by closed forms."""
    clients = {"a": regression(0), "b": regression(1, shift=0.5)}
    algorithm = pvi.PFedBayes(**{**FAST, "zeta": 3.0})
    result = pvi.fit(MODEL, clients, algorithm=algorithm, rounds=4)
    total = 0.0
    w = result.posterior.family.moments(result.posterior.natural)
    for name, (x, y) in clients.items():
        loc, variance = result.posterior.family.moments(result.personal[name].natural)
        matrix = design(x)
        total += dist.Normal(matrix @ loc, NOISE).log_prob(y).sum().item()
        total -= (matrix.square() @ variance).sum().item() / (2 * NOISE**2)
        total -= 3.0 * divergence(loc, variance.sqrt(), w[0], w[1].sqrt()).item()
    assert result.elbo == pytest.approx(total, abs=1e-8)
    assert result.history[-1].drift == 0
    assert all(not bool(factor.natural.any()) for factor in result.factors.values())


def test_the_start_of_w():
    clients = {"a": regression()}

    def guide(x, y=None):
        pyro.sample("weights", dist.Normal(torch.tensor([0.5, -0.5]).to(x), 0.3).to_event(1))
        pyro.sample("bias", dist.Normal(x.new_tensor(0.1), 0.2))

    still = {"learning_rate": 0.0, "global_learning_rate": 0.0}
    result = pvi.fit(MODEL, clients, guide, algorithm=pvi.PFedBayes(**still), rounds=1)
    assert result.posterior.mean["weights"].tolist() == pytest.approx([0.5, -0.5])
    assert result.posterior.sd["weights"].tolist() == pytest.approx([math.log1p(math.exp(-2.5))] * 2)
    as_given = pvi.fit(MODEL, clients, guide, algorithm=pvi.PFedBayes(**still, initial_rho=None), rounds=1)
    assert as_given.posterior.sd["bias"].item() == pytest.approx(0.2)
    from_prior = pvi.fit(MODEL, clients, algorithm=pvi.PFedBayes(**still, initial_rho=None), rounds=1)
    assert from_prior.posterior.sd["bias"].item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("scale", "weight"), [("paper", 2.0), ("batch", 2.0 * 3), ("iterations", 2.0 * 3 / 20), (1e-4, 2e-4), (0.0, 0.0)]
)
def test_scales_of_the_divergence(scale, weight):
    solver = TwoLevel(zeta=2.0, kl_scale=scale, local_iterations=20)
    assert solver.kl_weight(300, 100) == pytest.approx(weight)


def test_predictions_saves_and_exports_by_client(tmp_path):
    clients = logistic_clients()
    result = pvi.fit(logistic_regression.model, clients, algorithm=pvi.PFedBayes(**FAST), rounds=3)
    x = clients["c0"][0]
    own, shared = result.predict_mean(x, client="c0")["y"], result.predict_mean(x)["y"]
    assert not torch.allclose(own, shared)
    torch.testing.assert_close(result.of_client("c0").predict_mean(x)["y"], own)
    result.save(tmp_path / "run")
    again = pvi.load(tmp_path / "run", model=logistic_regression.model)
    for name, posterior in result.personal.items():
        torch.testing.assert_close(again.personal[name].natural, posterior.natural, rtol=0, atol=0)
    torch.testing.assert_close(again.predict_mean(x, client="c0")["y"], own)
    with pytest.raises(ValueError, match="'nobody' has no personal posterior; there are"):
        result.of_client("nobody")
    with pytest.raises(ValueError, match="algorithm='pfedbayes' makes them"):
        pvi.fit(logistic_regression.model, clients, rounds=1).of_client("c0")


def test_nothing_personal_leaves_the_client():
    assert Update._fields == ("client", "delta", "beside")  # the last is for methods that add something to it
    assert "personal" in ClientState._fields
    assert "personal" not in ServerState._fields


def private_model(x, y=None):
    effect = pyro.sample("effect", dist.Normal(x.new_tensor(0.0), 1.0), infer={"pvi": "private"})
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(bias + effect + x[:, 0], 1.0), obs=y)


def mean_model(x, y=None):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(weights.sum() + 0 * x[:, 0], 1.0), obs=y)


def discrete_model(x, y=None):
    coin = pyro.sample("coin", dist.Bernoulli(x.new_tensor(0.5)), infer={"pvi": "shared"})
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(coin + x[:, 0], 1.0), obs=y)


def learned_model(x, y=None):
    noise = pyro.param("noise", x.new_tensor(1.0), constraint=dist.constraints.positive)
    bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(bias + x[:, 0], noise), obs=y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zeta": -1.0}, "zeta is a finite number from 0"),
        ({"local_iterations": 0}, "local_iterations must be a whole number, at least 1"),
        ({"num_particles": 0}, "num_particles must be a whole number, at least 1"),
        ({"subset": 0}, "a subset .size. is a whole number of clients"),
        ({"smoothing": 0.0}, r"smoothing must lie in \(0, 1\]"),
        ({"smoothing": True}, "smoothing must lie"),
        ({"kl_scale": "other"}, "kl_scale is 'paper', 'iterations', 'batch' or a number"),
        ({"kl_scale": -1.0}, "kl_scale is a finite number from 0"),
        ({"average": "median"}, "average is 'parameters' or 'moments'"),
        ({"initial_rho": 100.0}, "initial_rho lies between"),
        ({"optimiser": "rmsprop"}, "unknown optimiser 'rmsprop'; there are adam, sgd"),
        ({"learning_rate": -0.1}, "a learning rate is a number from 0"),
        ({"epsilon": 0.0}, "epsilon is a positive number"),
        ({"local_iterations": 2.5}, "local_iterations must be a whole number, at least 1, got 2.5"),
        ({"num_particles": True}, "num_particles must be a whole number"),
        ({"num_particles": None}, "must be whole numbers, got None"),
        ({"zeta": None}, "zeta is a finite number from 0, got None"),
        ({"kl_scale": True}, "kl_scale is a finite number from 0, got True"),
        ({"keep_optimisers": "no"}, "keep_optimisers is True or False, got 'no'"),
        ({"personal_init": "zero"}, "personal_init is 'global' or 'draw'"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        pvi.PFedBayes(**options)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (MODEL, {"solver": "svi"}, "is defined by its local solver .two-level., got 'svi'; leave solver out"),
        (MODEL, {"guide": "full"}, "client 'a': pFedBayes is defined for a mean-field Gaussian"),
        (MODEL, {"acceleration": "anderson"}, "acceleration mixes clients' factors, which algorithm 'pfedbayes'"),
        (MODEL, {"damping": 0.5}, "is defined by its damping"),
        (MODEL, {"schedule": "sequential"}, "is defined by its schedule"),
        (private_model, {}, r"client 'a': pFedBayes makes every latent personal already.*\['effect'\]"),
        (MODEL, {"solver": pvi.PFedBayes().solver}, "is part of an algorithm: leave solver out"),
        (MODEL, {"algorithm": "pvi", "solver": pvi.PFedBayes().solver}, "solver 'two-level' is part of an algorithm"),
        (discrete_model, {}, r"the discrete latents \['coin'\] have none: sum them out"),
        (
            private_model,
            {"algorithm": pvi.PFedBayes(local_reparameterisation=True)},
            "makes every latent personal already",
        ),
        (
            mean_model,
            {"algorithm": pvi.PFedBayes(local_reparameterisation=True)},
            "client 'a': local_reparameterisation has nothing to draw row by row",
        ),
        (learned_model, {"learn": "all"}, r"learns no hyperparameters, but the model has \['noise'\]"),
    ],
)
def test_what_does_not_go_together(model, options, message):
    with pytest.raises(ValueError, match=message):
        pvi.fit_rounds(model, {"a": regression()}, **{"algorithm": "pfedbayes", "rounds": 1, **options})


def test_a_solve_that_breaks_down_keeps_the_personal_posterior():
    """Steps that leave the numbers: the visit is rejected, says why, and nothing of it is kept."""
    clients = {"a": regression(), "b": regression(1)}
    wild = pvi.PFedBayes(optimiser="sgd", learning_rate=1e200, batch_size=None)
    result = pvi.fit(MODEL, clients, algorithm=wild, rounds=2)
    assert set(result.history[-1].rejected) == {"a", "b"}
    for own in result.personal.values():  # nothing was learned: q itself
        torch.testing.assert_close(own.natural, result.posterior.natural, rtol=0, atol=0)
    loc, _ = result.posterior.family.moments(result.posterior.natural)
    assert loc.tolist() == [0.0] * 3  # w is where it started


def test_parameters_round_trip():
    problem, w = problem_of(regression())
    v = parameters(problem, w.natural)
    back = natural_from_moments(problem.family, v[0], softplus(v[1]))
    torch.testing.assert_close(back, w.natural, rtol=1e-12, atol=1e-12)


def test_absences_are_no_other_algorithm():
    """A client that is away learns nothing, and its posterior waits for it."""
    clients, schedule = logistic_clients(), SubsetAfterTraining(2)
    away = pvi.schedules.Dropouts(schedule, {"c0": [(1, 2)]})
    algorithm = pvi.PFedBayes(**FAST, subset=2)
    runs = list(pvi.fit_rounds(logistic_regression.model, clients, algorithm=algorithm, schedule=away, rounds=3))
    own = [run.personal["c0"].natural for run in runs]
    torch.testing.assert_close(own[1], own[0], rtol=0, atol=0)
    assert not torch.equal(own[2], own[1])
    assert "c0" not in runs[1].history[-1].clients
    with pytest.raises(ValueError, match="is defined by its schedule"):
        pvi.fit(logistic_regression.model, clients, algorithm=algorithm, schedule=SubsetAfterTraining(1), rounds=1)


def test_the_seed_of_subsets():
    clients = logistic_clients()
    found = [
        pvi.fit(
            logistic_regression.model, clients, algorithm=pvi.PFedBayes(**FAST, subset=1, subset_seed=seed), rounds=1
        )
        for seed in range(6)
    ]
    asked = {list(SubsetAfterTraining(1, seed).events(tuple(clients), 0))[1].asked for seed in range(6)}
    assert len(asked) > 1
    assert len({tuple(one.posterior.natural.tolist()) for one in found}) == len(asked)


def test_the_record_of_a_run_has_the_options(tmp_path):
    result = pvi.fit(logistic_regression.model, logistic_clients(), algorithm=pvi.PFedBayes(**FAST), rounds=1)
    assert result.settings["options"]["zeta"] == 1.0
    assert result.settings["options"]["kl_scale"] == "paper"
    assert "options" not in repr(result)
    result.save(tmp_path / "run")
    assert pvi.load(tmp_path / "run").settings["options"] == result.settings["options"]
