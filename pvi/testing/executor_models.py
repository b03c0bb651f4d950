"""The programs of :mod:`pvi.testing.executor_fixtures`."""

import pyro
import pyro.distributions as dist
from torch import Tensor


def logistic(x: Tensor, y: Tensor) -> None:
    """A coefficient a column."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def linear(x: Tensor, y: Tensor) -> None:
    """The same with known noise."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(x @ weights, 0.7), obs=y)


def rates(y: Tensor) -> None:
    """A Gamma rate of Poisson counts."""
    rate = pyro.sample("rate", dist.Gamma(y.new_tensor(2.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson(rate), obs=y)


def robust(y: Tensor) -> None:
    """Location and scale of Student's t."""
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    scale = pyro.sample("scale", dist.HalfCauchy(y.new_ones(())))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)


def subsampled(y: Tensor) -> None:
    """The same, four rows a run, where there are that many."""
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    scale = pyro.sample("scale", dist.HalfCauchy(y.new_ones(())))
    with pyro.plate("rows", len(y), subsample_size=min(4, len(y))) as rows:
        pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y[rows])


def mixed(x: Tensor, y: Tensor) -> None:
    """A logistic regression whose clients have intercepts of their own, around zero."""
    weights = pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))
    spread = pyro.sample("spread", dist.LogNormal(x.new_zeros(()), 0.5))
    own = pyro.sample("own", dist.Normal(x.new_zeros(()), spread), infer={"pvi": "private"})
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights + own), obs=y)


def overdispersed(y: Tensor) -> None:
    """Counts with an effect each."""
    rate = pyro.sample("rate", dist.Normal(y.new_zeros(()), 1.0))
    with pyro.plate("rows", len(y)):
        effect = pyro.sample("effect", dist.StudentT(5.0, y.new_zeros(()), 0.5))
        pyro.sample("y", dist.Poisson((rate + effect).exp()), obs=y)


def partly(u: Tensor, y: Tensor) -> None:
    """A shared intercept beside coefficients of a client's own columns, whose number differs."""
    bias = pyro.sample("bias", dist.StudentT(5.0, y.new_zeros(()), 1.0))
    own = pyro.sample("own", dist.Normal(u.new_zeros(u.shape[1]), 1.0).to_event(1), infer={"pvi": "private"})
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=bias + u @ own), obs=y)


def keyed(y: Tensor, *, times: int, level: Tensor) -> None:
    """A plain number and a tensor without rows beside the rows."""
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    scale = pyro.sample("scale", dist.HalfCauchy(y.new_ones(())))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, times * loc + level, scale), obs=y)


def counting(y: Tensor) -> None:
    """The more rows, the less they spread."""
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    scale = pyro.sample("scale", dist.HalfCauchy(y.new_ones(())))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, loc + y.mean(), scale / len(y) ** 0.1), obs=y)
