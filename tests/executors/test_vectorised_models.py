"""Every kind of program gives the loop's answer when its clients are computed together."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from together import F64, ROUNDING, binary, check_same, few, fit_both, numbers, outcomes
from torch import nn
from torch.nn import functional

import pvi


def location(like):
    return pyro.sample("loc", dist.Normal(like.new_zeros(()), 1.0))


def spread(like):
    return pyro.sample("spread", dist.LogNormal(like.new_zeros(()), 0.5))


def coefficients(x, name="weights"):
    return pyro.sample(name, dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))


def rows(y):
    return pyro.plate("rows", len(y))


def logistic(x, y):
    bias, weights = location(x), coefficients(x)
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


def robust(y):
    loc, scale = location(y), spread(y)
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)


def without_a_plate(y):
    loc, scale = location(y), spread(y)
    pyro.sample("y", dist.StudentT(4.0, loc.expand(len(y)), scale), obs=y)


def one_event_of_all_rows(y):
    """Its density is one number: nothing can be weighted, so that only clients of equal size are stacked."""
    loc, scale = location(y), spread(y)
    pyro.sample("y", dist.StudentT(4.0, loc.expand(len(y)), scale).to_event(1), obs=y)


def several_observed_sites(y):
    """One has no rows, but as many numbers as the longest client of ``SIZES`` has rows."""
    loc, scale = location(y), spread(y)
    pyro.sample("anchor", dist.StudentT(4.0, loc.expand(30), scale), obs=torch.linspace(-1, 1, 30, dtype=y.dtype))
    pyro.sample("total", dist.Normal(loc, scale), obs=y.new_tensor(0.4))
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)
        pyro.sample("positive", dist.Bernoulli(logits=loc / scale), obs=(y > 0).to(y))


def masked_and_scaled(y):
    loc, scale = location(y), spread(y)
    with rows(y), pyro.poutine.mask(mask=y > -1), pyro.poutine.scale(scale=0.5):
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)
    with pyro.poutine.scale(scale=2.0):
        pyro.sample("total", dist.Normal(loc, scale), obs=y.new_tensor(0.4))


def all_constraints(y):
    scale = pyro.sample("scale", dist.HalfCauchy(y.new_ones(())))
    chance = pyro.sample("chance", dist.Beta(y.new_tensor(2.0), 3.0))
    shares = pyro.sample("shares", dist.Dirichlet(y.new_ones(3)))
    bounded = pyro.sample("bounded", dist.Uniform(y.new_tensor(-1.0), 2.0))
    with rows(y):
        pyro.sample("y", dist.Normal(chance + bounded, scale), obs=y)
        pyro.sample("kind", dist.Categorical(shares), obs=torch.bucketize(y, y.new_tensor([-0.5, 0.5])))


def correlated_outcomes(y):
    correlation = pyro.sample("correlation", dist.LKJCholesky(3, 2.0))
    scale = pyro.sample("scale", dist.HalfNormal(y.new_ones(3)).to_event(1))
    with rows(y):
        law = dist.MultivariateNormal(y.new_zeros(3), scale_tril=scale[:, None] * correlation)
        pyro.sample("y", law, obs=y)


def counts(x, y):
    weights = coefficients(x)
    shape = pyro.sample("shape", dist.LogNormal(x.new_zeros(()), 0.5))
    with rows(y):
        pyro.sample("y", dist.NegativeBinomial(shape, logits=x @ weights), obs=y)


def in_place(x, y):
    """Tensors that are filled in place, through views too."""
    weights = coefficients(x)
    logits = torch.zeros_like(y)
    logits[:] = torch.tanh(x @ weights)
    logits.mul_(2.0)
    both = torch.stack([logits, torch.sin(x @ weights)])
    both[0] = both[0] + 0.1
    level = x.new_zeros(2)
    level.view(2)[1].fill_(0.5)
    shown = level.expand(2).view(2).squeeze(0)
    level.mul_(0.5)
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=both.sum(0) + shown[1]), obs=y)


FIXED = nn.Linear(2, 3).double()


def fixed_layer(x, y):
    """Parameters that nobody learns, which carry gradients all the same."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(3), 1.0).to_event(1))
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=torch.tanh(FIXED(x)) @ torch.sin(weights)), obs=y)


class Network(PyroModule):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = PyroModule[nn.Linear](2, 4), PyroModule[nn.Linear](4, 1)
        for layer in (self.hidden, self.out):
            for name, value in list(layer.named_parameters()):
                prior = dist.Normal(torch.zeros((), dtype=F64), 1.0).expand(value.shape).to_event(value.ndim)
                setattr(layer, name, PyroSample(prior))

    def forward(self, x, y):
        f = self.out(torch.tanh(self.hidden(x)))[:, 0]
        with rows(y):
            pyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def network(x, y):
    first = pyro.sample("first", dist.Normal(x.new_zeros(4, 2), 1.0).to_event(2))
    second = pyro.sample("second", dist.Normal(x.new_zeros(4), 1.0).to_event(1))
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=functional.relu(x @ first.mT) @ second), obs=y)


def images(x, y):
    kernel = pyro.sample("kernel", dist.Normal(x.new_zeros(2, 1, 3, 3), 0.5).to_event(4))
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(8, 3), 0.5).to_event(2))
    hidden = functional.max_pool2d(torch.relu(functional.conv2d(x, kernel)), 2).flatten(1)
    with rows(y):
        pyro.sample("y", dist.Categorical(logits=hidden @ weights), obs=y)


def hierarchical(x, y):
    """Shared spread, a client's own intercept and slopes."""
    scale, weights = spread(x), coefficients(x)
    own = pyro.sample("own", dist.Normal(x.new_zeros(()), scale), infer={"pvi": "private"})
    slopes = pyro.sample("slopes", dist.Normal(weights, scale).to_event(1), infer={"pvi": "private"})
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=x @ slopes + own), obs=y)


def overdispersed(x, y):
    weights, scale = coefficients(x), spread(x)
    with rows(y):
        effect = pyro.sample("effect", dist.StudentT(5.0, y.new_zeros(()), scale))
        pyro.sample("y", dist.Poisson((x @ weights + effect).exp()), obs=y)


def groups(x, y):
    """A plate of columns inside that of rows."""
    weights, scale = coefficients(x), spread(x)
    with pyro.plate("columns", 2, dim=-1), pyro.plate("rows", len(y), dim=-2):
        pyro.sample("x", dist.StudentT(4.0, weights, scale), obs=x)


def pictures():
    return [(numbers(n, 1, 6, 6, seed=n), torch.arange(n) % 3) for n in (2, 5, 9)]


def vectors():
    return [(numbers(n, 3, seed=n),) for n in (3, 5, 11)]


MODELS = {
    "logistic": (logistic, binary),
    "robust": (robust, outcomes),
    "without a plate": (without_a_plate, outcomes),
    "one event of all rows": (one_event_of_all_rows, outcomes),
    "several observed sites": (several_observed_sites, outcomes),
    "masked and scaled": (masked_and_scaled, outcomes),
    "constraints": (all_constraints, outcomes),
    "correlations": (correlated_outcomes, vectors),
    "counts": (counts, binary),
    "in place": (in_place, binary),
    "a fixed layer": (fixed_layer, binary),
    "a PyroModule": (Network().double(), binary),
    "a network": (network, binary),
    "images": (images, pictures),
    "hierarchical": (hierarchical, binary),
    "an effect a row": (overdispersed, binary),
    "two plates": (groups, binary),
}


PRIORS = {"constraints", "correlations"}
"""Their priors lie outside the family: the server solves for a factor of its own, to 1e-6 standard deviations."""


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model, data = MODELS[name]
    check_same(*fit_both(model, data(), solver=few(8)), allowed=1e-6 if name in PRIORS else ROUNDING)


def by_hand(y):
    pyro.sample("spread", dist.LogNormal(y.new_tensor(0.1), 0.3))
    pyro.sample("loc", dist.Normal(y.new_tensor(0.2), 0.5))


def also_of_the_private_ones(x, y):
    pyro.sample("spread", dist.LogNormal(x.new_tensor(0.1), 0.3))
    pyro.sample("weights", dist.Normal(x.new_zeros(2), 0.5).to_event(1))
    pyro.sample("own", dist.Normal(x.new_tensor(0.2), 0.5))
    pyro.sample("slopes", dist.Normal(x.new_zeros(2), 0.7).to_event(1))


GUIDES = {
    "full covariance": (logistic, binary, "full"),
    "full covariance, private latents": (hierarchical, binary, "full"),
    "groups": (hierarchical, binary, pvi.FullCovariance(("weights", "spread"))),
    "hand-written": (robust, outcomes, by_hand),
    "hand-written, private latents": (hierarchical, binary, also_of_the_private_ones),
}


@pytest.mark.parametrize("name", GUIDES)
def test_guides(name):
    model, data, guide = GUIDES[name]
    check_same(*fit_both(model, data(), guide=guide, solver=few(8)))


def test_float32():
    """Sums of 30 rows round at 1e-7, which Adam magnifies a little in 8 steps."""
    data = [(x.float(), y.float()) for x, y in binary()]
    check_same(*fit_both(logistic, data, solver=few(8)), allowed=1e-4)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_alpha_divergences(alpha):
    check_same(*fit_both(logistic, binary(), algorithm=pvi.PowerEP(alpha)))


@pytest.mark.parametrize("particles", [1, 5])
def test_particles(particles):
    check_same(*fit_both(robust, outcomes(), solver=pvi.solvers.SVI(steps=8, window=5, num_particles=particles)))
