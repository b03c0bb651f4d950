"""Small programs, and the records that the library makes of them."""

import pyro
import pyro.distributions as dist
import torch

from pvi.problem import build_problem
from pvi.programs.batch import as_batch
from pvi.programs.guides import MeanField, approximation
from pvi.programs.program import Program
from pvi.programs.sites import discover

F64 = torch.float64
LIKE = torch.zeros((), dtype=F64)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def program_of(model, *data, guide=None, **keywords):
    """The program over mean-field coordinates (any family will do), and its batch."""
    batch = as_batch(keywords or data, "a")
    sites = discover(model, batch, "a")
    return Program(model, sites, approximation(guide or MeanField(), sites.shared, batch).coordinates), batch


def problem_of(model, *data, guide=None):
    """The only client's local problem, and the prior."""
    built = build_problem(model, [data], guide, torch.device("cpu"), F64)
    return built.clients["client 0"], built.prior


def regression(x, y):
    """Coefficients with a vector prior and a scalar one; noise known."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 2.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.5, 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights + bias, 0.7), obs=y)


def unknown_noise(y):
    """A location and a positive scale."""
    loc = pyro.sample("loc", dist.Normal(1.0, 2.0))
    scale = pyro.sample("scale", dist.LogNormal(0.3, 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(loc, scale), obs=y)


def subsampled(y, batch_size=3):
    """Draws its own mini-batches, and observes one number outside the plate."""
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    pyro.sample("anchor", dist.Normal(loc, 2.0), obs=y.new_tensor(0.3))
    with pyro.plate("rows", len(y), subsample_size=batch_size) as rows:
        pyro.sample("y", dist.Normal(loc, 1.5), obs=y[rows])
