"""``pvi.fit`` as a user calls it."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from oracles import global_vi
from torch.distributions import constraints

import pvi
from pvi.client import Update
from pvi.models import linear_regression, logistic_regression
from pvi.solvers import SolverInfo


def clients(sizes=(30, 20, 40), features=3) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    truth = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)[:features]
    found = {}
    for index, n in enumerate(sizes):
        x = torch.randn(n, features, generator=generator, dtype=torch.float64)
        chance = torch.sigmoid(x @ truth).double()
        found[f"site {index}"] = (x, (torch.rand(n, generator=generator, dtype=torch.float64) < chance).double())
    return found


@pytest.fixture(scope="module")
def result() -> pvi.Result:
    return pvi.fit(logistic_regression.model, clients(), damping=0.5, rounds=8)


def test_history_has_one_record_a_round(result):
    assert [record.number for record in result.history] == list(range(1, 9))
    for record in result.history:
        assert record.communications == 2 * 3
        size = result.posterior.natural.numel() * 8
        assert record.bytes_sent == 3 * (2 * size + 16)
        assert record.seconds > 0
        assert record.step_fraction == 1
        assert set(record.clients) == set(record.expected_log_likelihood) == set(clients())
        assert record.elbo == pytest.approx(sum(record.expected_log_likelihood.values()) - record.kl)
    deltas = [record.max_delta for record in result.history]
    assert deltas[-1] < deltas[0]
    elbos = [record.elbo for record in result.history]
    assert elbos[-1] > elbos[0]


def test_the_free_energy_is_that_of_an_independent_oracle(result):
    import numpy as np
    from oracles import elbo

    x = torch.cat([x for x, _ in clients().values()])
    y = torch.cat([y for _, y in clients().values()])
    design = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).numpy()
    mean = np.append(result.posterior.mean["weights"].numpy(), result.posterior.mean["bias"])
    sd = np.append(result.posterior.sd["weights"].numpy(), result.posterior.sd["bias"])
    assert result.elbo == pytest.approx(elbo(design, y.numpy(), mean, sd**2), abs=1e-7)


def test_the_default_is_the_exact_solver(result):
    assert result.settings["solver"] == "Newton"
    assert all(info.solver.converged for record in result.history for info in record.clients.values())


def test_lists_tuples_and_dicts_of_tensors_are_the_same_data(result):
    as_list = list(clients().values())
    as_dicts = {name: {"x": x, "y": y} for name, (x, y) in clients().items()}
    for data in (as_list, as_dicts):
        again = pvi.fit(logistic_regression.model, data, damping=0.5, rounds=8)
        assert torch.equal(again.posterior.natural, result.posterior.natural)


@pytest.mark.parametrize("model", ["logistic_regression", "pvi.models.logistic_regression:model"])
def test_models_by_name(model, result):
    again = pvi.fit(model, clients(), damping=0.5, rounds=8)
    assert torch.equal(again.posterior.natural, result.posterior.natural)
    assert again.model_name == model


def test_a_model_in_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import pyro\nimport pyro.distributions as dist\n\n"
        "def height(y):\n"
        "    mean = pyro.sample('mean', dist.Normal(0.0, 10.0))\n"
        "    with pyro.plate('rows', len(y)):\n"
        "        pyro.sample('y', dist.Normal(mean, 1.0), obs=y)\n"
    )
    y = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    result = pvi.fit(f"{path}:height", [y[:2], (y[2:],)], damping=1.0, rounds=1)
    precision = 3 + 0.01
    assert result.posterior.mean["mean"].item() == pytest.approx(6 / precision)
    assert result.posterior.sd["mean"].item() == pytest.approx(precision**-0.5)


def test_history_says_how_far_the_means_still_move(result):
    shifts = [record.max_shift for record in result.history]
    assert shifts[0] > 1 > shifts[-1] > 0
    longer = pvi.fit(logistic_regression.model, clients(), damping=0.5, rounds=40)
    assert longer.history[-1].max_shift < 1e-4


def test_a_result_says_in_one_line_what_it_is(result):
    assert repr(result).startswith("Result(pvi.models.logistic_regression:model, 3 clients")
    assert "weights[3]" in repr(result)


def test_solvers_by_name(result):
    again = pvi.fit(logistic_regression.model, clients(), solver="newton", damping=0.5, rounds=8)
    assert torch.equal(again.posterior.natural, result.posterior.natural)


def test_integer_features_are_numbers():
    data = {name: (x.round().long(), y) for name, (x, y) in clients().items()}
    result = pvi.fit(logistic_regression.model, data, rounds=1)
    assert result.posterior.natural.dtype == torch.float64


def test_integer_and_boolean_outcomes_are_numbers(result):
    for kind in (torch.long, torch.bool):
        data = {name: (x, y.to(kind)) for name, (x, y) in clients().items()}
        again = pvi.fit(logistic_regression.model, data, damping=0.5, rounds=8)
        assert torch.equal(again.posterior.natural, result.posterior.natural)


def test_threads_are_set_for_the_run_and_set_back():
    seen, before = [], torch.get_num_threads()
    for threads in (1, 2):
        report = lambda record, q: seen.append(torch.get_num_threads())  # noqa: E731
        pvi.fit(logistic_regression.model, clients(), rounds=1, threads=threads, progress=report)
    assert seen == [1, 2]
    assert torch.get_num_threads() == before


def test_a_solve_that_did_not_converge_is_said():
    result = pvi.fit(logistic_regression.model, clients(), solver=pvi.solvers.Newton(max_steps=1), rounds=1)
    assert set(result.history[0].unconverged) == set(clients())
    assert "not converged" in result.history[0].unconverged["site 0"]


def test_one_client_is_global_vi():
    (data,) = clients(sizes=(60,)).values()
    result = pvi.fit(logistic_regression.model, [data], guide="full", damping=1.0, rounds=2)
    design = torch.cat([data[0], torch.ones(60, 1, dtype=torch.float64)], 1).numpy()
    assert result.elbo == pytest.approx(global_vi(design, data[1].numpy(), covariance="full").elbo, abs=1e-7)


def test_a_named_group_of_sites_gets_a_full_covariance(result):
    grouped = pvi.fit(logistic_regression.model, clients(), pvi.FullCovariance(("weights",)), damping=0.5, rounds=25)
    full = pvi.fit(logistic_regression.model, clients(), "full", damping=0.5, rounds=25)
    mean_field = pvi.fit(logistic_regression.model, clients(), damping=0.5, rounds=25)
    assert mean_field.elbo < grouped.elbo < full.elbo
    covariance = grouped.posterior.marginal("weights").covariance_matrix
    assert (covariance - torch.diag(covariance.diagonal())).abs().max() > 1e-4
    assert set(grouped.posterior.natural_by_site) == {"weights", "bias"}


def test_a_hand_written_guide_gives_families_and_starting_values(result):
    def guide(x, y=None):
        loc = pyro.param("loc", torch.full((3,), 0.3))
        scale = pyro.param("scale", torch.full((3,), 0.1), constraint=constraints.positive)
        pyro.sample("bias", dist.Normal(pyro.param("bias_loc", torch.tensor(0.0)), 1.0))
        pyro.sample("weights", dist.Normal(loc, scale).to_event(1))

    written = pvi.fit(logistic_regression.model, clients(), guide, damping=0.5, rounds=8)
    assert written.posterior.site_names == ("bias", "weights")
    assert written.posterior.mean["weights"].numpy() == pytest.approx(result.posterior.mean["weights"].numpy())
    assert len(pyro.get_param_store()) == 0


def test_sequential_counts_a_pass_as_a_round():
    result = pvi.fit(logistic_regression.model, clients(), schedule="sequential", damping=1.0, rounds=4)
    assert len(result.history) == 4
    assert result.history[0].communications == 6
    synchronous = pvi.fit(logistic_regression.model, clients(), damping=0.5, rounds=40)
    assert result.elbo == pytest.approx(synchronous.elbo, abs=1e-4)


def test_a_client_may_answer_in_a_later_round_than_it_was_asked():
    """The change of a late client is applied to the newest q: factors still sum to the posterior."""

    class Late:
        name = "late"

        def events(self, clients, round_index):
            first, *others = clients
            if round_index % 2 == 0:
                yield pvi.schedules.Dispatch((first,))
            yield pvi.schedules.Dispatch(tuple(others))
            yield pvi.schedules.Collect(tuple(others))
            if round_index % 2 == 1:
                yield pvi.schedules.Collect((first,))

    late = pvi.fit(logistic_regression.model, clients(), schedule=Late(), damping=0.5, rounds=40)
    assert [record.communications for record in late.history[:2]] == [4, 6]
    assert late.history[-1].drift < 1e-10
    prompt = pvi.fit(logistic_regression.model, clients(), damping=0.5, rounds=40)
    assert late.elbo == pytest.approx(prompt.elbo, abs=1e-3)


def test_the_same_seed_gives_the_same_bits_and_leaves_global_state_alone():
    solver = pvi.solvers.SVI(steps=60, window=20)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    runs = [pvi.fit(logistic_regression.model, clients(), solver=solver, rounds=2, seed=s) for s in (3, 3, 4)]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(runs[0].posterior.natural, runs[1].posterior.natural)
    assert not torch.equal(runs[0].posterior.natural, runs[2].posterior.natural)


class Shrinking:
    """Answers with a q of half the cavity's precision: three such answers at once overshoot."""

    name = "Shrinking"

    def solve(self, problem, cavity, start, seed):
        family = problem.family
        scale = family.standard(start)
        wider = {key: value * 2**0.5 if key.endswith("scale") else value for key, value in scale.items()}
        return family.natural_from_standard(**wider), SolverInfo(1, 0.0, True, "")


def test_a_step_that_would_make_q_improper_is_shortened_and_recorded():
    result = pvi.fit(logistic_regression.model, clients(), solver=Shrinking(), damping=1.0, rounds=1)
    record = result.history[0]
    # Three halvings of a unit precision sum to -1.5: the boundary is at 2/3 of the step.
    assert record.step_fraction == pytest.approx(0.99 * 2 / 3)
    assert all(info.step_fraction == record.step_fraction for info in record.clients.values())
    assert record.drift < 1e-12
    assert all(not factor.is_proper for factor in result.factors.values())


def test_a_positive_site_is_approximated_in_its_unconstrained_space():
    """Noise scale with a LogNormal prior: the default falls back to SVI; checked on a grid."""

    def model(y):
        scale = pyro.sample("scale", dist.LogNormal(y.new_tensor(0.0), y.new_tensor(1.0)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(y.new_zeros(len(y)), scale), obs=y)

    generator = torch.Generator().manual_seed(0)
    y = 2.0 * torch.randn(60, generator=generator, dtype=torch.float64)
    solver = pvi.solvers.SVI(steps=400)
    result = pvi.fit(model, [y[:20], y[20:]], damping=0.6, rounds=5, solver=solver)
    grid = torch.linspace(-0.5, 2.5, 4001, dtype=torch.float64).exp()[:, None]
    log_joint = dist.Normal(0.0, grid).log_prob(y).sum(1) + dist.LogNormal(0.0, 1.0).log_prob(grid[:, 0])
    weight = torch.softmax(log_joint + grid[:, 0].log(), 0)  # even steps in log scale
    mean = (weight * grid[:, 0]).sum()
    sd = ((weight * (grid[:, 0] - mean).square()).sum()).sqrt()
    assert abs(result.posterior.mean["scale"] - mean) < 0.1 * sd
    assert abs(result.posterior.sd["scale"] / sd - 1) < 0.1
    assert result.history[-1].elbo_standard_error > 0
    assert isinstance(result.posterior.marginal("scale"), torch.distributions.TransformedDistribution)


@pytest.mark.slow
def test_a_model_whose_plate_subsamples():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(x), subsample_size=10) as rows:
            pyro.sample("y", dist.Normal(x[rows] @ weights, 1.0), obs=y[rows])

    data = clients()
    solvers = pvi.solvers.SVI(steps=600), pvi.solvers.PyroSVI(steps=400)
    runs = [pvi.fit(model, data, solver=solver, damping=0.5, rounds=2) for solver in solvers]
    exact = pvi.fit(linear_without_bias, data, damping=0.5, rounds=2)
    for run in runs:
        distance = (run.posterior.mean["weights"] - exact.posterior.mean["weights"]) / exact.posterior.sd["weights"]
        assert distance.abs().max() < 0.5  # mini-batches of 10 rows are noisy; a wrong scale would be far off
        assert (run.posterior.sd["weights"] / exact.posterior.sd["weights"] - 1).abs().max() < 0.25


def linear_without_bias(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)


def test_prediction(result):
    x, y = clients()["site 0"]
    draws = result.predict(x, num_samples=4000)["y"]
    assert draws.shape == (4000, 30)
    assert set(draws.unique().tolist()) <= {0.0, 1.0}
    probability = result.predict_mean(x)["y"]
    error = (probability * (1 - probability) / 4000).sqrt()
    assert ((draws.mean(0) - probability).abs() / error).max() < 5
    spread = result.mean_draws(x, num_samples=200)["y"]
    assert spread.shape == (200, 30)
    assert (spread.std(0) > 0).all()
    density = result.log_predictive_density(x, y)["y"]
    observed = torch.where(y == 1, probability, 1 - probability).log()
    assert density.numpy() == pytest.approx(observed.numpy(), abs=1e-9)
    assert torch.equal(result.predict(x=x, num_samples=5)["y"], result.predict(x, num_samples=5)["y"])
    with pytest.raises(ValueError, match="no observations"):
        result.log_likelihood(x)


def test_progress_reports_every_round(capsys):
    seen = []
    pvi.fit(logistic_regression.model, clients(), rounds=3, progress=lambda record, q: seen.append(record.number))
    assert seen == [1, 2, 3]
    pvi.fit(logistic_regression.model, clients(), rounds=3, progress=True)
    assert "ELBO" in capsys.readouterr().out


def test_an_update_holds_the_change_and_nothing_else():
    """Privacy by type: rows, factors and client states have no place in a message."""
    assert Update._fields == ("client", "delta", "beside")
    assert Update._field_defaults == {"beside": None}  # of methods whose server sums something up beside q


@pytest.mark.slow
def test_both_stochastic_solvers_run_a_linear_regression_to_the_evidence():
    data = {name: (x, x.sum(1)) for name, (x, _) in clients().items()}
    exact = pvi.fit(linear_regression.model, data, damping=0.5, rounds=3)
    for solver in (pvi.solvers.SVI(steps=400), pvi.solvers.PyroSVI(steps=300)):
        run = pvi.fit(linear_regression.model, data, damping=0.5, rounds=3, solver=solver)
        assert math.isclose(run.elbo, exact.elbo, abs_tol=0.2)
