"""Bad input: an error before any fitting that names the client, the site or the column and says what to do."""

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pvi
from pvi.models import logistic_regression
from pvi.solvers import SolverInfo


def data(n: int = 20, features: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=generator, dtype=torch.float64)
    return x, (torch.rand(n, generator=generator) < torch.sigmoid(x[:, 0])).double()


def refuses(match: str, clients=None, model=logistic_regression.model, error=ValueError, **options):
    with pytest.raises(error, match=match):
        pvi.fit(model, {"a": data(), "b": data(seed=1)} if clients is None else clients, **{"rounds": 1, **options})


def test_no_clients():
    refuses("no clients", clients=[])
    refuses("no clients", clients={})


def test_clients_of_the_wrong_kind():
    refuses("list or a dict", clients=3, error=TypeError)
    refuses("client 'a'.*tuple or a dict", clients={"a": 3}, error=TypeError)


def test_an_empty_client():
    refuses("client 'empty' is empty", clients={"a": data(), "empty": data(0)})


def test_rows_that_do_not_match():
    x, y = data()
    refuses("client 'a'.*20.*19.*same number", clients={"a": (x, y[:-1])})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_name_client_argument_row_and_column(value):
    x, y = data()
    x[3, 1] = value
    refuses("client 'b'.*'x'.*row 3, column 1", clients={"a": data(), "b": (x, y)})


def test_columns_that_differ_between_clients():
    refuses("'weights' has shape.*client 'b'.*client 'a'.*same columns", clients={"a": data(), "b": data(features=3)})


def test_a_target_with_three_values_names_client_site_and_row():
    x, y = data()
    y[7] = 2.0
    refuses("client 'b'.*'y'.*Bernoulli.*2.0 at row 7", clients={"a": data(), "b": (x, y)})


def test_outcomes_of_shape_n_1_are_not_broadcast():
    x, y = data()
    refuses(
        r"client 'b'.*'y' has a value of shape \(20, 1\).*shape \(20,\)", clients={"a": data(), "b": (x, y[:, None])}
    )


def test_predictors_of_shape_n_1_are_not_broadcast():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(2, 1), 1.0).to_event(2))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    refuses(r"'y' has a value of shape \(20,\) under a distribution of shape \(20, 20\)", model=model)


def test_a_model_that_observes_nothing():
    def model(x, y):
        pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))

    refuses("observes nothing", model=model, error=pvi.ProgramError)


def test_a_model_without_latents():
    def model(x, y):
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x[:, 0]), obs=y)

    refuses("no shared latent site", model=model, error=pvi.ProgramError)


def test_a_model_that_fails_says_at_which_client():
    def model(x, y):
        raise RuntimeError("broken here")

    refuses("client 'a': the model failed.*broken here", model=model, error=pvi.ProgramError)


def guide(*sites: str):
    def program(x, y=None):
        shapes = {"weights": torch.zeros(2), "bias": torch.zeros(()), "other": torch.zeros(())}
        for site in sites:
            loc = pyro.param(f"{site}_loc", shapes[site])
            pyro.sample(site, dist.Normal(loc, 1.0).to_event(loc.ndim))

    return program


def test_a_guide_that_lacks_a_site():
    refuses(r"lacks the sites \['bias'\]", guide=guide("weights"), error=pvi.ProgramError)


def test_a_guide_with_an_extra_site():
    refuses(r"extra sites \['other'\]", guide=guide("weights", "bias", "other"), error=pvi.ProgramError)


def test_an_autoguide_is_pointed_to_its_equal():
    autoguide = pyro.infer.autoguide.AutoNormal(logistic_regression.model)
    refuses("guide=None is AutoNormal", guide=autoguide, error=pvi.ProgramError)


def test_a_full_covariance_that_does_not_fit():
    clients = {"a": (torch.zeros(3, 9000), torch.zeros(3))}
    refuses("full covariance over 9001 reals", clients=clients, guide="full", error=pvi.ProgramError)


def test_a_vector_of_features_is_refused():
    x, y = data()
    refuses(r"x must have shape \[rows, features\], got \[20\]", clients=[(x[:, 0], y)])


def test_data_frames_are_pointed_to_tensors():
    import pandas as pd

    x, y = data()
    refuses("DataFrame.*torch.as_tensor", clients=[(pd.DataFrame(x.numpy()), pd.Series(y.numpy()))])


def test_half_precision():
    refuses("float16 is not supported", dtype=torch.float16)


@pytest.mark.parametrize(
    ("columns", "match"), [(["a"], "1 names fit no dimension"), (["a", "a"], r"\['a'\] stand twice")]
)
def test_names_of_features_that_do_not_fit(columns, match):
    refuses(match, columns=columns)


def test_an_unknown_solver_by_name():
    refuses("unknown solver 'adam'.*newton, .*svi, pyro-svi", solver="adam")


def test_a_group_that_is_a_string():
    with pytest.raises(TypeError, match="groups of site names"):
        pvi.FullCovariance("weights")


def test_a_forgotten_link():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(probs=x @ weights), obs=y)

    refuses("'y' gets probs = .*in its Bernoulli.*link missing", model=model, error=pvi.ProgramError)


def test_a_prior_scale_that_is_not_positive():
    refuses("site 'weights' gets scale = -2 in its Normal", model=partial(logistic_regression.model, prior_scale=-2.0))


def test_a_parameter_that_nobody_would_learn():
    def model(x, y):
        offset = pyro.param("offset", torch.tensor(0.3))
        weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights + offset), obs=y)

    refuses(r"hyperparameters \['offset'\].*learn='all'", model=model, error=pvi.ProgramError)
    assert len(pyro.get_param_store()) == 0


def test_a_model_with_randomness_of_its_own():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights + torch.randn(len(x))), obs=y)

    refuses("client 'a'.*random numbers outside pyro.sample", model=model, error=pvi.ProgramError)


def test_a_subsampling_plate_of_the_wrong_size():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", 40, subsample_size=10) as rows:
            pyro.sample("y", dist.Bernoulli(logits=x[rows % 20] @ weights), obs=y[rows % 20])

    refuses("plate 'rows' has size 40 but the client has 20 rows", model=model, error=pvi.ProgramError)


def test_scoring_and_predicting_check_their_input():
    x, y = data()
    result = pvi.fit(logistic_regression.model, [(x, y)], rounds=1)
    with pytest.raises(ValueError, match=r"shape \(20, 1\) under a distribution of shape \(20,\)"):
        result.log_predictive_density(x, y[:, None])
    with pytest.raises(ValueError, match=r"inputs of shapes \[\(20, 3\).*'weights': \(2,\)"):
        result.predict_mean(torch.zeros(20, 3, dtype=torch.float64))
    broken = x.clone()
    broken[4, 0] = float("nan")
    with pytest.raises(ValueError, match=r"'x' has 1 values that are not finite.*row 4, column 0"):
        result.predict_mean(broken)


def test_a_discrete_latent_with_too_many_values():
    def model(x, y):
        z = pyro.sample("z", dist.Poisson(2.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x[:, 0] * z), obs=y)

    refuses(r"'z' is a discrete latent \(Poisson\) with too many values", model=model, error=pvi.ProgramError)


def test_private_latents_alone():
    def model(x, y):
        with pyro.plate("rows", len(x)):
            effect = pyro.sample("effect", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Bernoulli(logits=x[:, 0] + effect), obs=y)

    refuses(r"no shared latent site.*\['effect'\] are private", model=model, error=pvi.ProgramError)


def test_a_prior_that_depends_on_the_client():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(2), x.std() * torch.ones(2)).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    refuses("client 'b'.*one prior", model=model, error=pvi.ProgramError)


@pytest.mark.parametrize("damping", [0.0, -0.1, 1.5, float("nan")])
def test_damping_outside_its_range(damping):
    refuses(r"damping must lie in \(0, 1\]", damping=damping)


@pytest.mark.parametrize("rounds", [0, -1, 1.5])
def test_rounds_that_are_not_a_positive_number(rounds):
    refuses("rounds must be", rounds=rounds)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there():
    refuses("no CUDA device", device="cuda")


def test_a_schedule_that_collects_what_it_never_sent():
    class Hasty:
        name = "hasty"

        def events(self, clients, round_index):
            yield pvi.schedules.Collect(tuple(clients))

    refuses("'hasty' collects.*dispatch first", schedule=Hasty())


@pytest.mark.parametrize("option", ["algorithm", "schedule", "executor", "guide"])
def test_unknown_names_list_the_known_ones(option):
    refuses(f"unknown {option} 'nonsense'", **{option: "nonsense"})


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nonsense", "no bundled model 'nonsense'.*logistic_regression"),
        ("no.such.module:model", "cannot import"),
        ("missing.py:model", "there is no file"),
        ("pvi.models.logistic_regression:nonsense", "has no function 'nonsense'"),
    ],
)
def test_an_unknown_model(name, match):
    refuses(match, model=name, error=pvi.ModelNameError)


def test_newton_refuses_a_model_that_is_not_generalised_linear():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=(x @ weights) ** 2), obs=y)

    with pytest.raises(ValueError, match=r"client 'a'.*not affine") as raised:
        pvi.fit(model, {"a": data()}, solver=pvi.solvers.Newton(), rounds=1)
    assert "local solve of client 'a'" in raised.value.__notes__[0]


class Breaking:
    """A solver whose answer at one client is not finite, improper, or a broken factorisation."""

    name = "Breaking"

    def __init__(self, how: str) -> None:
        self.how = how
        self.inner = pvi.solvers.Newton()

    def solve(self, problem, cavity, start, seed):
        if problem.client != "b":
            return self.inner.solve(problem, cavity, start, seed)
        if self.how == "raises":
            raise torch.linalg.LinAlgError("not positive definite")
        natural = start * float("nan") if self.how == "nan" else -start
        return natural, SolverInfo(1, float("nan"), False, "broken")


@pytest.mark.parametrize(("how", "reason"), [("nan", "not finite"), ("improper", "improper"), ("raises", "broke down")])
def test_an_update_that_is_not_usable_leaves_the_factor_and_the_round_goes_on(how, reason, caplog):
    clients = {"a": data(), "b": data(seed=1), "c": data(seed=2)}
    result = pvi.fit(logistic_regression.model, clients, solver=Breaking(how), damping=0.5, rounds=2)
    assert reason in result.history[0].rejected["b"]
    assert "updates of 1 of 3 clients were not used" in caplog.text
    assert not bool(result.factors["b"].natural.any())
    without = pvi.fit(logistic_regression.model, {k: clients[k] for k in "ac"}, damping=0.5, rounds=2)
    assert torch.allclose(result.posterior.natural, without.posterior.natural)
    assert result.history[-1].drift < 1e-10


def test_numpy_arrays_are_accepted_and_the_result_says_its_precision():
    x, y = data()
    result = pvi.fit(logistic_regression.model, {"a": (np.asarray(x), np.asarray(y))}, rounds=1, dtype=torch.float32)
    assert result.posterior.natural.dtype == torch.float32
