"""Means of observed distributions: those of a Categorical are the probabilities of its classes."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import normal

from pvi.programs.batch import as_batch
from pvi.programs.predictive import expected_values, mean

LOGITS = normal(5, 3, seed=1)
PROBABILITIES = LOGITS.softmax(-1)


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        (dist.Categorical(logits=LOGITS), PROBABILITIES),
        (dist.Categorical(PROBABILITIES), PROBABILITIES),
        (dist.Categorical(logits=LOGITS).to_event(1), PROBABILITIES),
        (dist.Categorical(logits=LOGITS).mask(torch.tensor([True, True, False, True, True])), PROBABILITIES),
        (dist.Categorical(logits=LOGITS[0]).expand([5]), PROBABILITIES[:1].expand(5, 3)),
        (dist.OneHotCategorical(logits=LOGITS), PROBABILITIES),
        (dist.OrderedLogistic(LOGITS[:, 0], torch.tensor([-1.0, 1.0])), None),
        (dist.Bernoulli(logits=LOGITS), torch.sigmoid(LOGITS)),
        (dist.Normal(LOGITS, 1.0).to_event(1), LOGITS),
        (dist.Poisson(LOGITS.exp()).mask(False), LOGITS.exp()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, dist.Distribution) else "",
)
def test_means(distribution, expected):
    found = mean(distribution)
    if expected is None:  # cut points at -1 and 1: P(y = 0) = sigmoid(-1 - f), P(y = 2) = sigmoid(f - 1)
        low, high = torch.sigmoid(-1 - LOGITS[:, 0]), torch.sigmoid(LOGITS[:, 0] - 1)
        expected = torch.stack([low, 1 - low - high, high], -1)
    torch.testing.assert_close(found, expected.to(found))


def classes(x, y=None):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(3, x.shape[1]), 1.0).to_event(2))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Categorical(logits=x @ weights.mT), obs=y)


def by_steps(x, y=None):
    """Control flow on a value: its draws run one by one."""
    weights = pyro.sample("weights", dist.Normal(torch.zeros(3, x.shape[1]), 1.0).to_event(2))
    sign = 1 if float(weights.sum()) > 0 else -1
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Categorical(logits=sign * (x @ weights.mT)), obs=y)


@pytest.mark.parametrize("model", [classes, by_steps])
def test_class_probabilities_at_many_draws(model):
    x, weights = normal(4, 2, seed=2), normal(20, 3, 2, seed=3)
    found = expected_values(model, ("y",), {"weights": weights}, as_batch({"x": x}, "a"))["y"]
    sign = torch.where(weights.sum((1, 2)) > 0, 1.0, -1.0) if model is by_steps else torch.ones(20)
    logits = sign[:, None, None].double() * torch.einsum("nd,skd->snk", x, weights)
    torch.testing.assert_close(found, logits.softmax(-1))
    assert found.shape == (20, 4, 3)
