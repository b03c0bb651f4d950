"""Fewer draws for each round's ELBO: a larger standard error, the same run."""

import pyro
import pyro.distributions as dist
import pytest
import torch

import pvi


def model(x, y=None):
    """Not generalised linear: the rate is the exponential of a product."""
    a, b = pyro.sample("a", dist.Normal(x.new_tensor(0.0), 1.0)), pyro.sample("b", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(torch.tanh(a * x) * b, 0.5), obs=y)


def clients():
    generator = torch.Generator().manual_seed(0)
    xs = [torch.randn(rows, generator=generator, dtype=torch.float64) for rows in (30, 20)]
    return {f"site {k}": (x, torch.tanh(x) + 0.5 * torch.randn(len(x), generator=generator, dtype=torch.float64))
            for k, x in enumerate(xs)}  # fmt: skip


@pytest.mark.parametrize("executor", ["loop", "vectorised"])
def test_the_error_grows_and_nothing_else_changes(executor):
    options = {"solver": pvi.solvers.SVI(steps=50), "rounds": 1, "executor": executor}
    many, few = [pvi.fit(model, clients(), elbo_samples=number, **options) for number in (4096, 64)]
    assert torch.equal(many.posterior.natural, few.posterior.natural)
    last, other = many.history[-1], few.history[-1]
    assert 4 < other.elbo_standard_error / last.elbo_standard_error < 16  # √64 = 8
    assert abs(other.elbo - last.elbo) < 5 * other.elbo_standard_error


@pytest.mark.parametrize("number", [1, 0, 2.5, True, "10"])
def test_numbers_that_have_no_error_are_refused(number):
    with pytest.raises(ValueError, match="elbo_samples must be a whole number, at least 2"):
        pvi.fit(model, clients(), elbo_samples=number)
