"""Hyperparameters: learned ones maximise the evidence (type-II maximum likelihood) or the bound on it."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from oracles import best_scales, type_two
from scipy.optimize import minimize_scalar
from torch.distributions import constraints
from toy_programs import F64

import pvi
from pvi.learning import Slope, ascend, client_slope, prior_slope
from pvi.problem import build_problem

SIZES = (12, 7, 31)


def regression_clients():
    generator = torch.Generator().manual_seed(0)
    truth = 1.5 * torch.randn(4, generator=generator, dtype=F64)
    data = []
    for n in SIZES:
        x = torch.randn(n, 4, generator=generator, dtype=F64)
        data.append((x, x @ truth + 0.7 * torch.randn(n, generator=generator, dtype=F64)))
    return data


def regression(x, y):
    noise_scale = pyro.param("noise_scale", x.new_tensor(1.0), constraint=constraints.positive)
    prior_scale = pyro.param("prior_scale", x.new_tensor(1.0), constraint=constraints.positive)
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(4), prior_scale).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ weights, noise_scale), obs=y)


def logistic_clients():
    generator = torch.Generator().manual_seed(3)
    data = []
    for n in (40, 30, 50):
        x = torch.randn(n, 3, generator=generator, dtype=F64)
        chance = torch.sigmoid(x @ torch.tensor([2.0, -1.0, 0.5], dtype=F64))
        data.append((x, (torch.rand(n, generator=generator, dtype=F64) < chance).to(F64)))
    return data


def logistic(x, y):
    prior_scale = pyro.param("prior_scale", x.new_tensor(1.0), constraint=constraints.positive)
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), prior_scale).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def pooled(data):
    return torch.cat([x for x, _ in data]).numpy(), torch.cat([y for _, y in data]).numpy()


@pytest.mark.parametrize("learn", [["noise_scale"], ["prior_scale"], "all"], ids=str)
def test_scales_of_linear_regression_maximise_the_evidence(learn):
    data = regression_clients()
    kept = {"noise_scale": 1.0, "prior_scale": 1.0}
    given = {} if learn == "all" else {name: value for name, value in kept.items() if name not in learn}
    best = type_two(*pooled(data), **given)
    result = pvi.fit(regression, data, guide="full", damping=1.0, rounds=12, learn=learn)
    assert result.hyperparameters["noise_scale"].item() == pytest.approx(best.noise_scale, rel=1e-4)
    assert result.hyperparameters["prior_scale"].item() == pytest.approx(best.prior_scale, rel=1e-4)
    assert result.elbo == pytest.approx(best.objective, abs=1e-6)
    assert set(result.history[-1].hyperparameters) == (set(kept) if learn == "all" else set(learn))


def test_a_prior_scale_of_logistic_regression_maximises_the_bound():
    data = logistic_clients()
    best = best_scales(*pooled(data))
    result = pvi.fit(logistic, data, damping=0.5, rounds=25, learn="all")
    assert result.hyperparameters["prior_scale"].item() == pytest.approx(best.prior_scale, rel=1e-3)
    assert result.elbo == pytest.approx(best.objective, abs=1e-4)
    assert result.history[-1].drift < 1e-8  # the prior moved under the factors


def test_slopes_are_derivatives_of_the_free_energy():
    """Finite differences of F(q, ε) at a q that is no optimum, hyperparameter by hyperparameter."""
    from pvi.assembly import assemble
    from pvi.objectives import client_term

    device = torch.device("cpu")
    problem = build_problem(regression, regression_clients(), None, device, None, learn="all")
    natural = 1.3 * problem.prior.natural + 0.1
    slopes = [client_slope(problem, name, natural, None) for name in problem.clients]
    total = sum(slope.gradient for slope in slopes) + prior_slope(problem, natural).gradient
    curvature = sum(slope.curvature for slope in slopes) + prior_slope(problem, natural).curvature

    def value(u):
        moved = assemble(problem.setup, u)
        likelihood = sum(client_term(part, natural, None).value for part in moved.clients.values())
        prior = moved.prior
        inner = (prior.natural * prior.family.mean_parameters(natural)).sum() - prior.family.log_partition(
            prior.natural
        )
        return likelihood + inner.item()

    for k in range(2):
        step = torch.zeros(2, dtype=F64)
        step[k] = 1e-4
        up, at, down = (value(problem.hyperparameters + sign * step) for sign in (1, 0, -1))
        assert total[k].item() == pytest.approx((up - down) / 2e-4, rel=1e-5)
        assert curvature[k, k].item() == pytest.approx((up - 2 * at + down) / 1e-8, rel=1e-3)


def test_a_parameter_inside_the_predictor():
    """A learned offset of every row: its optimum is that of a coefficient without a prior."""

    def model(x, y):
        offset = pyro.param("offset", x.new_tensor(0.0))
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(x @ weights + 3 * offset, 0.7), obs=y)

    data = regression_clients()
    x, y = pooled(data)
    covariance = 0.49 * np.eye(len(y)) + x @ x.T
    inverse = np.linalg.inv(covariance)
    ones = np.ones(len(y))
    best = (ones @ inverse @ y) / (ones @ inverse @ ones) / 3  # generalised least squares
    result = pvi.fit(model, data, guide="full", damping=1.0, rounds=10, learn="all")
    assert result.hyperparameters["offset"].item() == pytest.approx(best, abs=1e-5)


@pytest.mark.slow
def test_where_expectations_are_sampled_the_slope_is_right_within_its_noise():
    """A Student noise scale through SVI: the draws are fixed, so the optimum of the sampled bound is found."""

    def model(x, y):
        noise = pyro.param("noise_scale", x.new_tensor(1.0), constraint=constraints.positive)
        loc = pyro.sample("loc", dist.Normal(0.0, 10.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Laplace(loc, noise), obs=y)

    data = [(x, y) for x, y in regression_clients()]
    solver = pvi.solvers.SVI(steps=150, num_particles=8, window=30)
    result = pvi.fit(model, data, rounds=4, damping=1.0, schedule="sequential", learn="all", solver=solver)
    loc = result.posterior.sample(20_000, torch.Generator().manual_seed(0))["loc"]
    y = torch.cat([y for _, y in data])
    # The maximum over the scale at the last q, E_q[mean |y - loc|], against which the last step was one behind.
    best = (y - loc[:, None]).abs().mean().item()
    assert result.hyperparameters["noise_scale"].item() == pytest.approx(best, rel=0.02)


def test_a_private_latents_scale_is_learned_too():
    """Random intercepts of linear regression: the evidence in closed form, over the scale of the intercepts."""

    def model(x, y):
        tau = pyro.param("tau", x.new_tensor(1.0), constraint=constraints.positive)
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
        own = pyro.sample("own", dist.Normal(x.new_tensor(0.0), tau), infer={"pvi": "private"})
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(x @ weights + own, 0.7), obs=y)

    data = [(x, y + shift) for (x, y), shift in zip(regression_clients(), (-2.0, 1.0, 0.5), strict=True)]
    x, y = pooled(data)
    place = np.repeat(np.arange(3), SIZES)
    same = (place[:, None] == place[None]).astype(float)

    def evidence(log_tau):
        covariance = 0.49 * np.eye(len(y)) + x @ x.T + np.exp(2 * log_tau) * same
        return -0.5 * (
            np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y) + len(y) * np.log(2 * np.pi)
        )

    best = minimize_scalar(lambda t: -evidence(t), bounds=(-3, 3), method="bounded", options={"xatol": 1e-8})
    result = pvi.fit(model, data, guide="full", damping=1.0, rounds=15, learn="all")
    assert result.hyperparameters["tau"].item() == pytest.approx(np.exp(best.x), rel=1e-3)
    assert result.elbo == pytest.approx(-best.fun, abs=1e-5)


def test_predictions_and_checkpoints_use_what_was_learned(tmp_path):
    data = regression_clients()
    result = pvi.fit(regression, data, guide="full", damping=1.0, rounds=3, learn="all")
    result.save(tmp_path)
    again = pvi.load(tmp_path, model=regression)
    assert {name: value.item() for name, value in again.hyperparameters.items()} == {
        name: value.item() for name, value in result.hyperparameters.items()
    }
    x, _ = data[0]
    draws = again.predict(x, y=None, num_samples=4000)["y"]
    noise = (draws - draws.mean(0)).std().item()
    assert noise == pytest.approx(result.hyperparameters["noise_scale"].item(), rel=0.25)


def test_parameters_can_stay():
    result = pvi.fit(regression, regression_clients(), rounds=1, learn=[])
    assert result.hyperparameters["noise_scale"].item() == 1.0
    assert result.history[-1].hyperparameters == {}


def test_bad_requests():
    data = regression_clients()
    with pytest.raises(pvi.ProgramError, match=r"hyperparameters \['noise_scale', 'prior_scale'\].*learn='all'"):
        pvi.fit(regression, data)
    with pytest.raises(pvi.ProgramError, match=r"learn=\['noise'\]: the model's hyperparameters .* \['noise_scale'"):
        pvi.fit(regression, data, learn=["noise"])
    with pytest.raises(TypeError, match=r"one name is learn=\['noise_scale'\]"):
        pvi.fit(regression, data, learn="noise_scale")
    with pytest.raises(pvi.ProgramError, match=r"has no hyperparameters \(pyro.param\) to learn"):
        pvi.fit("logistic_regression", logistic_clients(), learn="all")
    with pytest.raises(ValueError, match=r"acceleration needs rounds that all apply the same map"):
        pvi.fit(regression, data, learn="all", acceleration="anderson")


def test_an_initial_value_must_not_depend_on_the_data():
    def model(x, y):
        offset = pyro.param("offset", y.mean())
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(x @ weights + offset, 0.7), obs=y)

    with pytest.raises(pvi.ProgramError, match=r"'offset' starts at another value .* at client 'client 1'"):
        pvi.fit(model, regression_clients(), learn="all")


def test_the_step_is_uphill_and_bounded():
    u = torch.zeros(2, dtype=F64)
    gradient = torch.tensor([3.0, -0.1], dtype=F64)
    for curvature in (torch.diag(torch.tensor([-1.0, -1.0])), torch.diag(torch.tensor([2.0, -5.0])), torch.zeros(2, 2)):
        step = ascend(u, Slope(gradient, curvature.to(F64)))
        assert (step @ gradient).item() > 0
        assert step.abs().max().item() <= 1.0


def test_algorithms_of_one_round_do_not_learn_and_others_take_their_time():
    data = regression_clients()
    with pytest.raises(ValueError, match=r"'vcl' makes one round, but hyperparameters are learned over many"):
        pvi.fit(regression, data, guide="full", algorithm="vcl", learn="all")
    best = type_two(*pooled(data))
    result = pvi.fit(regression, data, guide="full", algorithm="global-vi", learn="all")
    assert result.elbo == pytest.approx(best.objective, abs=1e-6)


def test_hyperparameters_that_still_move_are_told(caplog):
    pvi.fit(regression, regression_clients(), guide="full", damping=1.0, rounds=2, learn="all")
    assert any("still moved by over 1 %" in record.getMessage() for record in caplog.records)


def test_a_start_where_the_model_is_of_another_kind():
    def model(x, y):
        power = pyro.param("power", x.new_tensor(0.0))
        top = pyro.sample("top", dist.Normal(x.new_tensor(0.0), 1.0))
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(4), torch.exp(power * top)).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)

    with pytest.raises(pvi.ProgramError, match=r"initial values of the hyperparameters \['power'\] .* another kind"):
        pvi.fit(model, regression_clients(), learn="all")
