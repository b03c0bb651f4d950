"""What FOLA and FedCurv refuse, at once or update by update: who it was, what was wrong, and what to do."""

import logging

import pyro
import pyro.distributions as dist
import pytest
import torch

import pvi
from pvi.families.precision import precision

DOUBLE = torch.float64


def data(sizes=(30, 12, 40)):
    generator, found = torch.Generator().manual_seed(0), []
    for n in sizes:
        x = torch.randn(n, 2, generator=generator, dtype=DOUBLE)
        y = x @ torch.tensor([1.0, -0.7], dtype=DOUBLE) + 0.5 * torch.randn(n, generator=generator, dtype=DOUBLE)
        found.append((x, y))
    return found


def fitted(model, algorithm, given=None, **options):
    return pvi.fit(model, data() if given is None else given, algorithm=algorithm, **{"rounds": 2} | options)


def prior_of(x):
    return pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))


def linear(x, y):
    weights = prior_of(x)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def heavy_tailed(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 100.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(2.0, x @ weights, 0.5), obs=y)


def sparse(x, y):
    weights = pyro.sample("weights", dist.Laplace(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def scaled(x, y):
    noise = pyro.sample("noise", dist.HalfCauchy(x.new_tensor(1.0)))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(torch.zeros_like(y), noise), obs=y)


def own_bias(x, y):
    bias = pyro.sample("bias", dist.Normal(x.new_zeros(()), 1.0), infer={"pvi": "private"})
    weights = prior_of(x)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights + bias, 0.5), obs=y)


def switched(x, y):
    switch = pyro.sample("switch", dist.Bernoulli(x.new_tensor(0.5)))
    weights = prior_of(x)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights + switch, 0.5), obs=y)


def centred(x, y):
    weights = prior_of(x)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal((x - x.mean(0)) @ weights, 0.5), obs=y)


def subsampling(x, y):
    weights = prior_of(x)
    with pyro.plate("rows", len(y), subsample_size=5) as rows:
        pyro.sample("y", dist.Normal(x[rows] @ weights, 0.5), obs=y[rows])


def learning(x, y):
    scale = pyro.param("scale", x.new_tensor(1.0), constraint=dist.constraints.positive)
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), scale).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def wide(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(20_001), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights[:2] + 0 * weights.sum(), 0.5), obs=y)


@pytest.mark.parametrize("build", [pvi.FOLA, pvi.FOLAOffline, pvi.FOLAPrior, pvi.FOLAExperts])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "banded"}, r"FOLA: structure is one of \('diagonal', 'full', 'e-full'\), got 'banded'"),
        ({"curvature": "fisher"}, r"FOLA: curvature is one of \('empirical-fisher', .*\), or None, got 'fisher'"),
        ({"prior_precision": 0.0}, r"FOLA: prior_precision is a finite number above 0, .* got 0.0"),
        ({"prior_precision": -1.0}, r"FOLA: prior_precision is a finite number above 0, .* got -1.0"),
        ({"prior_precision": float("nan")}, r"FOLA: prior_precision is a finite number above 0, .* got nan"),
        ({"keep_prior": "yes"}, r"FOLA: keep_prior is True or False, got 'yes'"),
        ({"prior_weight": -1.0}, r"FOLA: prior_weight is a finite number from 0, got -1.0"),
        ({"prior_weight": None}, r"FOLA: prior_weight is a finite number from 0, got None"),
        ({"aggregation": "sum"}, r"FOLA: aggregation is 'experts' or 'average', got 'sum'"),
        ({"online": "no"}, r"FOLA: online is True or False, got 'no'"),
        ({"local_iterations": 3, "epochs": 2}, r"FOLA: give local_iterations or epochs, one of them"),
        ({"epochs": 0}, r"FOLA: epochs must be a whole number, at least 1, got 0"),
        ({"batch_size": 2.5}, r"FOLA: batch_size must be a whole number"),
        ({"optimiser": "adamw"}, r"unknown optimiser 'adamw'; there are adam, sgd"),
        ({"learning_rate": float("nan")}, r"a learning rate is a number from 0, got nan"),
        ({"weights": "labels"}, r"weights is 'rows' or 'equal', got 'labels'"),
        ({"clients_per_round": 0}, r"FOLA: clients_per_round is a whole number, at least 1, or None for all, got 0"),
    ],
    ids=str,
)
def test_options_of_fola(build, options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": -0.1}, r"FedCurv: penalty is a finite number from 0, got -0.1"),
        ({"penalty": float("inf")}, r"FedCurv: penalty is a finite number from 0, got inf"),
        ({"epochs": 0}, r"FedCurv: epochs must be a whole number, at least 1, got 0"),
        ({"local_iterations": 2, "epochs": 1}, r"FedCurv: give local_iterations or epochs, one of them"),
        ({"weights": "labels"}, r"weights is 'rows' or 'equal', got 'labels'"),
        ({"clients_per_round": True}, r"FedCurv: clients_per_round is a whole number"),
    ],
    ids=str,
)
def test_options_of_fedcurv(options, message):
    with pytest.raises(ValueError, match=message):
        pvi.FedCurv(**options)


FULL, OUTSIDE = (
    pvi.FOLA(structure="full"),
    r"'{}' takes the prior as a Gaussian in unconstrained space, but the prior of '",
)


@pytest.mark.parametrize(
    ("model", "algorithm", "message"),
    [
        (sparse, "fola", OUTSIDE.format("fola")),
        (sparse, FULL, r"give the latents Normal priors \(LogNormal for positive ones\), independent of each other"),
        (sparse, "fedcurv", OUTSIDE.format("fedcurv")),
        (scaled, "fola-prior", OUTSIDE.format("fola-prior")),
        (own_bias, "fola", r"client 'client 0': FOLA approximates .*, but the model has private ones, \['bias'\]"),
        (own_bias, "fedcurv", r"client 'client 0': FedCurv averages every latent, .* private ones, \['bias'\]"),
        (switched, "fola", r"client 'client 0': FOLA .* discrete latents \['switch'\] have none: sum them out"),
        (switched, FULL, r"client 'client 0': FOLA .* discrete latents \['switch'\] have none: sum them out"),
        (switched, "fedcurv", r"client 'client 0': FedCurv .* discrete latents \['switch'\] have none: sum them out"),
        (centred, "fola", r"client 'client 0': .*the model looks across its rows .*use curvature=\"hessian\""),
        (centred, pvi.FOLA(curvature="ggn"), r"client 'client 0': .*the model looks across its rows"),
        (centred, "fedcurv", r"client 'client 0': .*the model looks across its rows"),
        *[
            (subsampling, algorithm, r"client 'client 0': plate 'rows' draws its own rows.* leave subsample_size out")
            for algorithm in (pvi.FOLA(), pvi.FOLA(curvature="ggn"), pvi.FOLA(curvature="mean-gradient"),
                              pvi.FOLA(curvature="hessian", online=False), pvi.FedCurv())
        ],
        (subsampling, pvi.FOLA(curvature=None, epochs=1), r"FOLA counts epochs .* subsamples 5 of 30 rows itself"),
        (heavy_tailed, pvi.FOLA(curvature="ggn"), r"client 'client 0': observed site 'y': no Fisher information is "
         r"known for StudentT.*use curvature=\"empirical-fisher\""),
        (wide, pvi.FOLA(structure="e-full"), r"client 'client 0': 20,001 latents would need a matrix of 400,040,001 "),
        (wide, pvi.FOLA(curvature="hessian"), r"use structure='diagonal' with another curvature"),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)  # fmt: skip
def test_models_that_they_are_not_for(model, algorithm, message):
    with pytest.raises(ValueError, match=message):
        fitted(model, algorithm)


def test_what_needs_another_guide():
    for algorithm, guide, message in (
        (FULL, "mean-field", r"client 'client 0': FOLA with structure='full' .* pass guide='full', or leave the guide"),
        (pvi.FOLA(), "full", r"client 'client 0': FOLA with structure='diagonal' is for a mean-field Gaussian"),
        (pvi.FOLA(structure="e-full"), "full", r"FOLA with structure='e-full' is for a mean-field Gaussian"),
        (pvi.FedCurv(), "full", r"client 'client 0': FedCurv is defined for a mean-field Gaussian"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted(linear, algorithm, guide=guide)
    with pytest.raises(pvi.ProgramError, match=r"a full covariance over 20001 reals .* needs 3 GB"):
        fitted(wide, FULL)
    with pytest.raises(pvi.ProgramError, match=r"the model has hyperparameters \['scale'\]"):
        fitted(learning, "fola")
    with pytest.raises(ValueError, match=r"algorithm 'fola' learns no hyperparameters"):
        fitted(learning, "fola", learn="all")


@pytest.mark.parametrize("algorithm", ["fola", "fedcurv"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "sequential"}, r"is defined by its schedule \(synchronous\), got 'sequential'"),
        ({"damping": 0.5}, r"is defined by its damping \(1.0\), got 0.5"),
        ({"solver": "newton"}, r"is defined by its local solver \((laplace|curved)-steps\), got 'newton'"),
        ({"acceleration": "anderson"}, r"mixes clients' factors, which algorithm '(fola|fedcurv)' does not have"),
    ],
    ids=str,
)
def test_what_they_cannot_be_combined_with(algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        fitted(linear, algorithm, **options)


@pytest.fixture(params=["loop", "vectorised"])
def run_by(request):
    return "loop" if request.param == "loop" else pvi.executors.Vectorised(compile=False)


def precision_of(result):
    return precision(result.posterior.family, result.posterior.natural)


@pytest.mark.parametrize("online", [True, False], ids=["online", "offline"])
def test_an_indefinite_hessian_is_not_used(run_by, online, caplog):
    """One client's residuals lie where its density is convex; the others' round goes on without it."""
    given = data()
    given[1] = given[1][0], given[1][1] + 30 * torch.sign(torch.arange(12) % 2 - 0.5)
    algorithm = pvi.FOLA(curvature="hessian", online=online, batch_size=None, learning_rate=1e-3)
    with caplog.at_level(logging.WARNING, "pvi"):
        result = fitted(heavy_tailed, algorithm, given, executor=run_by, rounds=1)
    said = (
        "the local solve ended in an improper q; the factor stays (curvature='hessian' may be indefinite; "
        "'ggn', where it is known, and 'empirical-fisher' are not)"
    )
    assert result.history[0].rejected == {"client 1": said}
    assert "updates of 1 of 3 clients were not used in the last round: client 1: " in caplog.text
    assert "no update was used in any round" not in caplog.text
    with caplog.at_level(logging.WARNING, "pvi"):
        fitted(heavy_tailed, algorithm, {"client 1": given[1]}, executor=run_by, rounds=1)
    assert "no update was used in any round: the result is what the run started with" in caplog.text
    alone = fitted(heavy_tailed, algorithm, {"client 0": given[0], "client 2": given[2]}, rounds=1)
    # Without the other client's rows the precision counts 70 in the place of 82; its pull counts for little.
    ratio = (precision_of(result) - 1e-4) / (precision_of(alone) - 1e-4)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 82 / 70), rtol=1e-3, atol=0)


@pytest.mark.parametrize("structure", ["diagonal", "full", "e-full"])
@pytest.mark.parametrize("curvature", ["empirical-fisher", "mean-gradient", "ggn", "hessian"])
def test_a_curvature_that_overflows_is_not_used(run_by, curvature, structure):
    """The other clients' answers are, and the message says whose update it was, and why."""
    given = data()
    given[1] = 1e160 * given[1][0], given[1][1]
    algorithm = pvi.FOLA(structure=structure, curvature=curvature, learning_rate=0.0)
    result = fitted(linear, algorithm, given, executor=run_by, rounds=1, guide=None)
    (name, reason), *others = result.history[0].rejected.items()
    assert (name, others) == ("client 1", [])
    assert f"its curvature={curvature!r} is not finite: check the scale of the data" in reason
    assert torch.isfinite(precision_of(result)).all()
    assert 1 < precision_of(result).max() < 1e6


def test_fedcurvs_curvature_that_overflows_is_not_used(run_by):
    given = data()
    given[1] = 1e160 * given[1][0], given[1][1]
    result = fitted(linear, pvi.FedCurv(learning_rate=0.0), given, executor=run_by)
    for record in result.history:
        (name, reason), *others = record.rejected.items()
        assert (name, others) == ("client 1", [])
        assert "its curvature='empirical-fisher' is not finite" in reason
    assert 1 < precision_of(result).max() < 1e6


@pytest.mark.parametrize("algorithm", [pvi.FOLA, pvi.FOLAOffline, pvi.FedCurv])
def test_steps_that_diverge_are_not_used(run_by, algorithm):
    """Where nobody's are, q stays what it was, and the next round is again the first."""
    result = fitted(linear, algorithm(learning_rate=1e6, local_iterations=60), executor=run_by)
    for record in result.history:
        assert record.rejected.keys() == {"client 0", "client 1", "client 2"}
        assert all("take a smaller learning_rate" in reason for reason in record.rejected.values())
    assert torch.equal(result.posterior.natural, result.prior.natural)


@pytest.mark.parametrize("build", [pvi.FOLA, pvi.FedCurv])
def test_steps_that_overshoot_their_centre_are_not_used(run_by, build):
    """Where the fit is bad at first, squared gradients of rows hold the next steps so hard that they diverge."""
    given = [(x, y + 300 * x[:, 0]) for x, y in data()]
    result = fitted(linear, build(local_iterations=200, learning_rate=1e-3), given, executor=run_by)
    assert result.history[0].rejected == {}
    assert result.history[1].rejected.keys() == {"client 0", "client 1", "client 2"}
    for reason in result.history[1].rejected.values():
        assert "a step towards its centre is " in reason
        assert "diverges from 2 on: take a smaller learning_rate, or less weight of the prior or penalty" in reason


def test_data_that_are_no_numbers():
    given = data()
    given[1] = given[1][0] * float("nan"), given[1][1]
    with pytest.raises(ValueError, match=r"client 'client 1': 'x' has 24 values that are not finite"):
        fitted(linear, "fola", given)
    given[1] = given[1][0][:0], given[1][1][:0]
    with pytest.raises(ValueError, match=r"client 'client 1' is empty: it has no rows"):
        fitted(linear, "fedcurv", given)


def test_a_plate_that_subsamples_where_there_is_no_curvature():
    """Nobody asks for the gradients of single rows then; it is FedProx."""
    first = fitted(subsampling, pvi.FOLA(curvature=None, local_iterations=4), rounds=1)
    second = fitted(subsampling, pvi.FedProx(1 / 82, 4), rounds=1)
    torch.testing.assert_close(first.posterior.mean["weights"], second.posterior.mean["weights"])
    assert (precision_of(first) == 1).all()
