"""Generalised linear models are recognised by evaluation, all others refused with the reason."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from toy_programs import LIKE, normal, program_of, regression, subsampled, unknown_noise

from pvi.programs.linear_predictor import MAX_SIZE, LinearPredictor, NotAffine, find_predictor

X = normal(8, 3, seed=1)
COUNTS = torch.tensor([0.0, 1.0, 3.0, 2.0, 0.0, 5.0, 1.0, 0.0], dtype=torch.float64)
BINARY = (COUNTS > 0).to(X)
REAL = normal(8, seed=2)
TOTAL = torch.full((8,), 5.0, dtype=torch.float64)


def glm(likelihood, offset=0.0):
    """weights and bias through the given likelihood of the predictor."""

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        bias = pyro.sample("bias", dist.Normal(x.new_tensor(0.0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", likelihood(x @ weights + bias + offset), obs=y)

    return model


def found(model, *data):
    program, batch = program_of(model, *data)
    return find_predictor(program, batch, LIKE)


LIKELIHOODS = {
    "Bernoulli": (lambda f: dist.Bernoulli(logits=f), BINARY),
    "Bernoulli(probs)": (lambda f: dist.Bernoulli(probs=f.sigmoid()), BINARY),
    "Binomial": (lambda f: dist.Binomial(TOTAL, logits=f), COUNTS),
    "Poisson": (lambda f: dist.Poisson(f.exp()), COUNTS),
    "Normal": (lambda f: dist.Normal(f, 0.5), REAL),
    "StudentT": (lambda f: dist.StudentT(3.0, f, 0.5), REAL),
}


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_recognised(kind):
    likelihood, y = LIKELIHOODS[kind]
    predictor = found(glm(likelihood, offset=0.3), X, y)
    assert isinstance(predictor, LinearPredictor), predictor
    torch.testing.assert_close(predictor.design, torch.cat([X, X.new_ones(8, 1)], 1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(predictor.offset, X.new_full((8,), 0.3))
    f = normal(8, seed=3)
    torch.testing.assert_close(predictor.log_prob(f), likelihood(f).log_prob(y))
    both = torch.stack([f, 2 * f])
    torch.testing.assert_close(torch.func.vmap(predictor.log_prob)(both), likelihood(both).log_prob(y))


def test_recognised_as_an_event_and_in_single_precision():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        pyro.sample("y", dist.Bernoulli(logits=x @ weights).to_event(1), obs=y)

    program, batch = program_of(model, X.float(), BINARY.float())
    predictor = find_predictor(program, batch, LIKE.float())
    assert isinstance(predictor, LinearPredictor), predictor
    assert predictor.design.dtype == torch.float32
    torch.testing.assert_close(predictor.design, X.float())
    f = normal(8, seed=3).float()
    torch.testing.assert_close(predictor.log_prob(f), dist.Bernoulli(logits=f).log_prob(BINARY.float()))


def probit(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    f = pyro.deterministic("linear_predictor", x @ weights)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(torch.special.ndtr(f)), obs=y)


def cloglog(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    rate = pyro.deterministic("linear_predictor", x @ weights + 0.1).exp()
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=rate + (-torch.expm1(-rate)).log()), obs=y)


def gamma(x, y):
    """A likelihood without a link of its own."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    f = pyro.deterministic("linear_predictor", x @ weights)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Gamma(2.0, 2.0 * (-f).exp()), obs=y.abs() + 0.1)


@pytest.mark.parametrize(
    ("model", "offset", "by_hand"),
    [
        (probit, 0.0, lambda f: dist.Bernoulli(torch.special.ndtr(f)).log_prob(BINARY)),
        (cloglog, 0.1, lambda f: torch.where(BINARY == 1, (-torch.expm1(-f.exp())).log(), -f.exp())),
        (gamma, 0.0, lambda f: dist.Gamma(2.0, 2.0 * (-f).exp()).log_prob(BINARY + 0.1)),
    ],
    ids=["probit", "cloglog", "gamma"],
)
def test_marked_predictors_with_unusual_likelihoods(model, offset, by_hand):
    predictor = found(model, X, BINARY)
    assert isinstance(predictor, LinearPredictor), predictor
    torch.testing.assert_close(predictor.design, X)
    torch.testing.assert_close(predictor.offset, X.new_full((8,), offset))
    f = 0.5 * normal(8, seed=3)
    torch.testing.assert_close(predictor.log_prob(f), by_hand(f))


def test_scales_and_masks_count():
    keep = BINARY.bool()

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        with pyro.plate("rows", len(y)), poutine.scale(scale=0.5), poutine.mask(mask=keep):
            pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)

    predictor = found(model, X, REAL)
    assert isinstance(predictor, LinearPredictor), predictor
    f = normal(8, seed=3)
    torch.testing.assert_close(predictor.log_prob(f), 0.5 * dist.Normal(f, 1.0).log_prob(REAL) * keep)


def test_scales_and_masks_of_event_likelihoods_count():
    """One number a row is needed: an event's density cannot be cut by a mask, but its scale counts."""

    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        with poutine.scale(scale=0.5):
            pyro.sample("y", dist.Normal(x @ weights, 1.0).to_event(1), obs=y)

    predictor = found(model, X, REAL)
    assert isinstance(predictor, LinearPredictor), predictor
    f = normal(8, seed=3)
    torch.testing.assert_close(predictor.log_prob(f), 0.5 * dist.Normal(f, 1.0).log_prob(REAL))


def test_a_masked_event_is_refused_rather_than_unmasked():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
        with poutine.mask(mask=torch.tensor(False)):
            pyro.sample("y", dist.Normal(x @ weights, 1.0).to_event(1), obs=y)

    refused = found(model, X, REAL)
    assert isinstance(refused, NotAffine)
    assert "do not add up to its likelihood" in refused.reason


def not_affine(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal((x @ weights).tanh(), 1.0), obs=y)


def interaction(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights + weights[0] * weights[1], 1.0), obs=y)


def positive_coefficient(x, y):
    weights = pyro.sample("weights", dist.LogNormal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)


def rows_coupled(x, y):
    """An autoregression of the residual: row i looks at the predictor of row i - 1."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    f = pyro.deterministic("linear_predictor", x @ weights)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(f + 0.5 * (y - f).roll(1), 1.0), obs=y)


def unknown_scale(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    scale = pyro.sample("scale", dist.LogNormal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def vector_outcome(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3, 2), 1.0).to_event(2))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 1.0).to_event(1), obs=torch.stack([y, y], -1))


def unmarked(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Gamma(2.0, (x @ weights).exp()), obs=y.abs() + 0.1)


def two_observed(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 1.0), obs=y)
        pyro.sample("again", dist.Normal(x @ weights, 1.0), obs=y)


def private(x, y):
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(x @ weights + z, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (not_affine, "predictor is not affine"),
        (interaction, "predictor is not affine"),
        (positive_coefficient, "predictor is not affine"),
        (rows_coupled, "likelihood of a row depends on the predictor of other rows"),
        (unknown_scale, "depends on the latents in another way than through the predictor"),
        (vector_outcome, r"predictor has shape \(8, 2\) where one number a row is needed"),
        (unmarked, r"no pyro.deterministic\(\"linear_predictor\", f\) marks the predictor"),
        (two_observed, "several observed sites"),
        (private, "private latents"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused_with_the_reason(model, reason):
    refused = found(model, X, REAL)
    assert isinstance(refused, NotAffine)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(refused.reason)


def test_refused_for_subsampling_and_size():
    refused = found(subsampled, REAL)
    assert isinstance(refused, NotAffine)
    assert "a plate that subsamples" in refused.reason
    refused = found(regression, normal(2, MAX_SIZE, seed=4), REAL[:2])
    assert isinstance(refused, NotAffine)
    assert f"{MAX_SIZE + 1} latents are more than the {MAX_SIZE}" in refused.reason


def test_a_scale_that_multiplies_the_predictor_is_refused():
    refused = found(unknown_noise, REAL)
    assert isinstance(refused, NotAffine)


def marked(likelihood):
    return glm(lambda f: likelihood(pyro.deterministic("linear_predictor", f)))


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_a_kink_is_refused_wherever_the_observations_lie(shift):
    refused = found(marked(lambda f: dist.Laplace(f, 0.5)), X, REAL + shift)
    assert isinstance(refused, NotAffine)
    assert "not smooth" in refused.reason


def test_a_narrow_likelihood_gets_more_nodes_or_is_refused():
    widths = [found(glm(lambda f, s=s: dist.StudentT(4.0, f, s)), X, REAL + 50).width for s in (5.0, 0.5, 0.2)]
    assert widths == sorted(widths, reverse=True)
    assert widths[2] < widths[0]
    assert isinstance(found(glm(lambda f: dist.StudentT(4.0, f, 0.001)), X, REAL), NotAffine)


def by_shape(f):
    """The logistic likelihood in programs that do not broadcast: by an error, by a wrong shape, by a wrong value."""
    if f.ndim == 1:
        return dist.Bernoulli(logits=f)
    return dist.Bernoulli(logits=2 * f)


UNBROADCAST = {
    "raises": lambda f: dist.Bernoulli(logits=f.view(8)),
    "wrong shape": lambda f: dist.Bernoulli(logits=f.reshape(-1, 8)[-1]),
    "wrong value": by_shape,
    "takes the first axis for rows": lambda f: dist.Bernoulli(logits=f[torch.arange(8).clamp(max=len(f) - 1)]),
}


@pytest.mark.parametrize("likelihood", UNBROADCAST.values(), ids=UNBROADCAST)
@pytest.mark.parametrize("k", [1, 2, 3, 8, 9])
def test_many_predictors_at_once_where_the_program_takes_one(likelihood, k):
    predictor = found(glm(likelihood), X, BINARY)
    assert isinstance(predictor, LinearPredictor), predictor
    f = normal(k, 8, seed=3)
    torch.testing.assert_close(predictor.log_prob(f), dist.Bernoulli(logits=f).log_prob(BINARY))
    torch.testing.assert_close(predictor.log_prob(f[0]), dist.Bernoulli(logits=f[0]).log_prob(BINARY))


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_many_predictors_run_the_program_once(kind):
    likelihood, y = LIKELIHOODS[kind]
    runs = []

    def counted(f):
        runs.append(f.shape)
        return likelihood(f)

    predictor = found(glm(lambda f: counted(f)), X, y)
    runs.clear()
    f = normal(5, 8, seed=3)
    torch.testing.assert_close(predictor.log_prob(f), likelihood(f).log_prob(y))
    assert len(runs) == 1


def test_control_flow_on_values_is_probed_one_by_one():
    def model(x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        f = x @ weights if weights.isfinite().all() else x.new_zeros(8)
        with pyro.plate("rows", 8):
            pyro.sample("y", dist.Bernoulli(logits=f), obs=y)

    predictor = found(model, X, BINARY)
    assert isinstance(predictor, LinearPredictor), predictor
    torch.testing.assert_close(predictor.design, X)
    assert predictor.smooth
