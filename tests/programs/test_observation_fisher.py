"""Gauss-Newton matrices and Hessians: closed forms, the definition by brute force, stacks, graphs, bad input."""

from functools import partial

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch.func import jacrev, vmap
from toy_programs import F64, normal, program_of, regression, subsampled, unknown_noise

from pvi.capture import Captured
from pvi.models import bayesian_mlp, logistic_regression, poisson_regression
from pvi.programs.batch import Batch
from pvi.programs.errors import ProgramError
from pvi.programs.observation_fisher import fisher_roots, hessian

X, Y = normal(7, 3, seed=1), normal(7, seed=2)
LABELS = (Y > 0).to(F64)
CLASSES = torch.tensor([0, 2, 1, 1, 0, 2, 2])
COUNTS = torch.tensor([0, 2, 1, 5, 0, 3, 1], dtype=F64)
PRESENT = torch.tensor([1, 1, 0, 1, 1, 0, 1], dtype=F64)
DESIGN = torch.cat([X, torch.ones_like(X[:, :1])], 1)
POINT = 0.5 * normal(4, seed=3)


def gauss_newton(program, x, batch, weights=None):
    roots = fisher_roots(program, x, batch, weights)
    return roots.mT @ roots


def bernoulli_logits(f):
    return dist.Bernoulli(logits=f)


def bernoulli_probs(f):
    return dist.Bernoulli(torch.sigmoid(f))


def binomial_logits(f):
    return dist.Binomial(6, logits=f)


def binomial_probs(f):
    return dist.Binomial(torch.full_like(f, 6.0), torch.sigmoid(f))


def poisson(f):
    return dist.Poisson(torch.exp(f))


LINEAR = {
    bernoulli_logits: (LABELS, lambda f: torch.sigmoid(f) * torch.sigmoid(-f)),
    bernoulli_probs: (LABELS, lambda f: torch.sigmoid(f) * torch.sigmoid(-f)),
    binomial_logits: (COUNTS, lambda f: 6 * torch.sigmoid(f) * torch.sigmoid(-f)),
    binomial_probs: (COUNTS, lambda f: 6 * torch.sigmoid(f) * torch.sigmoid(-f)),
    poisson: (COUNTS, torch.exp),
}


def linear(law, x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", law(x @ w), obs=y)


@pytest.mark.parametrize("law", LINEAR, ids=lambda law: law.__name__)
def test_generalised_linear_models_have_their_closed_form(law):
    """Xᵀ W X, which is the Hessian too."""
    y, variance = LINEAR[law]
    program, batch = program_of(partial(linear, law), DESIGN, y)
    for weights in (None, PRESENT):
        own = variance(DESIGN @ POINT) * (1.0 if weights is None else weights)
        expected = DESIGN.mT @ (own[:, None] * DESIGN)
        assert fisher_roots(program, POINT, batch, weights).shape == (7, 4)
        torch.testing.assert_close(gauss_newton(program, POINT, batch, weights), expected)
        torch.testing.assert_close(hessian(program, POINT, batch, weights), expected)


@pytest.mark.parametrize(
    ("model", "y", "variance"),
    [
        (logistic_regression.model, LABELS, lambda f: torch.sigmoid(f) * torch.sigmoid(-f)),
        (poisson_regression.model, COUNTS, torch.exp),
    ],
    ids=["logistic", "poisson"],
)
def test_bundled_models_have_their_closed_form(model, y, variance):
    program, batch = program_of(model, X, y)
    expected = DESIGN.mT @ (variance(DESIGN @ POINT)[:, None] * DESIGN)
    torch.testing.assert_close(gauss_newton(program, POINT, batch), expected)


def test_gaussian_regression_has_its_closed_form():
    program, batch = program_of(regression, X, Y)
    expected = DESIGN.mT @ DESIGN / 0.7**2
    # The noise is known: it takes no rows of R.
    assert fisher_roots(program, POINT, batch).shape == (7, 4)
    with torch.no_grad():
        assert fisher_roots(program, POINT, batch).shape == (7, 4)
    torch.testing.assert_close(gauss_newton(program, POINT, batch), expected)
    torch.testing.assert_close(hessian(program, POINT, batch), expected)


def test_the_scale_of_a_gaussian_has_information_of_its_own():
    program, batch = program_of(unknown_noise, Y)
    x = torch.tensor([0.3, -0.4], dtype=F64)
    # In (loc, log σ): n / σ² and n 2 / σ² · σ².
    expected = torch.tensor([7 * torch.exp(-2 * x[1]), 14.0], dtype=F64).diag()
    torch.testing.assert_close(gauss_newton(program, x, batch), expected)
    # Σ (y - loc)² / (2 σ²) + log σ, twice differentiated.
    residual, precision = Y - x[0], torch.exp(-2 * x[1])
    cross = 2 * residual.sum() * precision
    second = torch.stack([7 * precision, cross, cross, 2 * residual.square().sum() * precision]).reshape(2, 2)
    torch.testing.assert_close(hessian(program, x, batch), second)


def softmax(kind, x, y):
    w = pyro.sample("w", dist.Normal(x.new_zeros(4, 3), 1.0).to_event(2))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", kind(x @ w), obs=y)


SOFTMAX = {
    "categorical logits": (lambda f: dist.Categorical(logits=f), CLASSES),
    "categorical probs": (lambda f: dist.Categorical(torch.softmax(f, -1)), CLASSES),
    "one-hot logits": (lambda f: dist.OneHotCategorical(logits=f), torch.eye(3, dtype=F64)[CLASSES]),
    "one-hot probs": (lambda f: dist.OneHotCategorical(torch.softmax(f, -1)), torch.eye(3, dtype=F64)[CLASSES]),
}


@pytest.mark.parametrize("kind", SOFTMAX)
def test_softmax_regression_has_its_closed_form(kind):
    law, y = SOFTMAX[kind]
    program, batch = program_of(partial(softmax, law), DESIGN, y)
    x = normal(12, seed=4)
    p = torch.softmax(DESIGN @ x.reshape(4, 3), -1)
    expected = sum(
        w * torch.kron(torch.outer(row, row), own.diag() - torch.outer(own, own))
        for row, own, w in zip(DESIGN, p, PRESENT, strict=True)
    )
    torch.testing.assert_close(gauss_newton(program, x, batch, PRESENT), expected)
    torch.testing.assert_close(hessian(program, x, batch, PRESENT), expected)


def test_a_network_has_what_the_definition_says():
    """Σ J_jᵀ (diag p - p pᵀ) J_j with J by autodiff of a network written here; not the Hessian."""
    program, batch = program_of(partial(bayesian_mlp.model, hidden=4, classes=3), X, CLASSES)
    x = normal(program.coordinates.size, seed=5)

    def logits(x):
        first, bias, second, other = x.split([12, 4, 12, 3])
        return torch.relu(X @ first.reshape(4, 3).mT + bias) @ second.reshape(3, 4).mT + other

    p, jacobian = torch.softmax(logits(x), -1), jacrev(logits)(x)
    information = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    expected = torch.einsum("ncd,nce,nef->df", jacobian, information, jacobian)
    torch.testing.assert_close(gauss_newton(program, x, batch), expected)
    assert (hessian(program, x, batch) - expected).abs().max() > 0.1


def test_several_sites_events_masks_and_scales_add_up():
    keep, often = torch.tensor([True, False, True]), torch.tensor(2.5, dtype=F64)

    def model(x, y, z):
        w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            with poutine.scale(scale=often):
                pyro.sample("y", dist.Normal(x * w, 0.5).to_event(1), obs=y)
            with poutine.mask(mask=x[:, 0] > 0):
                pyro.sample("z", dist.Poisson(torch.exp(x * w)).mask(keep).to_event(1), obs=z)

    def unmasked(x, y, z):
        w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            with poutine.scale(scale=often):
                pyro.sample("y", dist.Normal(x * w, 0.5).to_event(1), obs=y)
            with poutine.mask(mask=x[:, 0] > 0):
                pyro.sample("z", dist.Poisson(torch.exp(x * w)).to_event(1), obs=z)

    data, w = (X, X.square(), COUNTS[:, None].expand(7, 3)), POINT[:3]
    program, batch = program_of(unmasked, *data)
    kept = (X[:, :1] > 0) * torch.exp(X * w) * X.square()
    expected = (2.5 / 0.25 * X.square().sum(0) + kept.sum(0)).diag()
    assert fisher_roots(program, w, batch).shape == (7 * 6, 3)
    torch.testing.assert_close(gauss_newton(program, w, batch), expected)
    torch.testing.assert_close(hessian(program, w, batch), expected)
    program, batch = program_of(model, *data)
    with pytest.raises(ProgramError, match=r"site 'z'.*MaskedDistribution.*empirical-fisher"):
        fisher_roots(program, w, batch)


def test_impossible_classes_and_rates_that_underflow_have_no_information():
    def classes(x, y):
        w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        f = torch.stack([x @ w, torch.zeros_like(x[:, 0]), torch.full_like(x[:, 0], -torch.inf)], -1)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Categorical(logits=f), obs=y)

    program, batch = program_of(classes, X, CLASSES.clamp(max=1))
    p = torch.sigmoid(X @ POINT[:3])
    expected = X.mT @ ((p * (1 - p))[:, None] * X)
    torch.testing.assert_close(gauss_newton(program, POINT[:3], batch), expected)
    program, batch = program_of(partial(linear, poisson), DESIGN, COUNTS)
    far = torch.tensor([0, 0, 0, -1000], dtype=F64)
    assert (fisher_roots(program, far, batch) == 0).all()


def test_stacks_of_clients_and_graphs_give_the_same():
    program, _ = program_of(partial(bayesian_mlp.model, hidden=3, classes=3), X, CLASSES)
    points, x = normal(3, program.coordinates.size, seed=5), normal(3, 7, 3, seed=6)
    y, weights = torch.stack([CLASSES, CLASSES.flip(0), CLASSES]), torch.stack([PRESENT, PRESENT, torch.ones(7)])

    def both(point, x, y, weights):
        batch = Batch((x, y), {})
        return fisher_roots(program, point, batch, weights), hessian(program, point, batch, weights)

    each = [torch.stack(values) for values in zip(*map(both, points, x, y, weights), strict=True)]
    data = (points, x, y, weights)
    graph = Captured(vmap(both), (points + 1, x.flip(0), y.flip(0), weights), False)
    for found in (vmap(both)(*data), graph(*data)):
        torch.testing.assert_close(list(found), each)


def student(f):
    return dist.StudentT(4.0, f, 1.0)


def test_other_distributions_are_told():
    program, batch = program_of(partial(linear, student), DESIGN, Y)
    with pytest.raises(ProgramError, match=r"site 'y'.*StudentT.*only for.*Poisson.*empirical-fisher"):
        fisher_roots(program, POINT, batch)


def test_a_factor_is_told():
    def model(x):
        w = pyro.sample("w", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
        pyro.factor("loss", -(x @ w).square().sum())

    program, batch = program_of(model, X)
    with pytest.raises(ProgramError, match=r"site 'loss'.*Unit.*empirical-fisher"):
        fisher_roots(program, POINT[:3], batch)


def one_private(y):
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    shift = pyro.sample("shift", dist.Normal(0.0, 1.0), infer={"pvi": "private"})
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc + shift, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "words"), [(subsampled, "leave subsample_size out"), (one_private, r"\['shift'\] are private")]
)
def test_programs_without_rows_of_their_own_are_told(model, words):
    program, batch = program_of(model, Y)
    with pytest.raises(ProgramError, match=words):
        fisher_roots(program, torch.zeros(program.coordinates.size, dtype=F64), batch)
