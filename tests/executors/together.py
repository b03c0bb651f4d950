"""Fits under the loop and under the vectorised executor, and what their answers must share."""

import torch

import pvi
from pvi.executors import Vectorised
from pvi.solvers import SVI

F64 = torch.float64
ROUNDING = 1e-8
"""Standard deviations. Both executors work with the same numbers; sums over rows and clients round in other orders, and
Adam magnifies that while its second moments are small."""
SIZES = (2, 7, 12, 30)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def outcomes(sizes=SIZES):
    """One real number a row."""
    return [(0.3 + numbers(n, seed=k),) for k, n in enumerate(sizes)]


def binary(sizes=SIZES):
    """Two features and a binary outcome a row."""
    found = []
    for k, n in enumerate(sizes):
        x, noise = numbers(n, 2, seed=k), numbers(n, seed=50 + k)
        found.append((x, (x[:, 0] - 0.4 * x[:, 1] + 0.5 * noise > 0).to(F64)))
    return found


def few(steps=12, **options):
    """A short solve, with windows that end inside it."""
    return SVI(steps=steps, num_particles=2, window=5, **options)


def fit_both(model, data, *, executor=None, rounds=2, solver=None, **options):
    """The results of the loop and of the batched computation."""
    options |= {"rounds": rounds, "solver": solver or few(), "damping": options.get("damping", 0.3)}
    loop = pvi.fit(model, data, executor="loop", **options)
    return loop, pvi.fit(model, data, executor=executor or Vectorised(compile=False), **options)


def deviations(family, one, two):
    """How far two members of a Gaussian family are apart, in standard deviations of the first."""
    return ((family.free(one) - family.free(two)) / family.free_scale(one)).abs().max().item()


def ran(result):
    """What ran the local steps."""
    return {info.executor for record in result.history for info in record.visits}


def check_same(loop, together, allowed=ROUNDING, executors=frozenset({"vectorised"})):
    """The same posterior, factors, own latents and step counts; and it ran where it should."""
    assert ran(loop) == {"loop"}
    assert ran(together) == set(executors)
    natural = loop.posterior.natural
    assert deviations(loop.posterior.family, natural, together.posterior.natural) <= allowed
    assert not together.posterior.natural.requires_grad
    assert list(loop.factors) == list(together.factors)
    for name, factor in loop.factors.items():
        apart = (factor.natural - together.factors[name].natural) / natural.abs().clamp(min=1.0)
        assert apart.abs().max() <= 100 * allowed, name
    assert list(loop.local) == list(together.local)
    for name, posterior in loop.local.items():
        assert deviations(posterior.family, posterior.natural, together.local[name].natural) <= allowed, name
    for one, two in zip(loop.history, together.history, strict=True):
        assert abs(one.elbo - two.elbo) <= 100 * allowed * max(1.0, abs(one.elbo))
        assert (one.attempts, one.damping) == (two.attempts, two.damping)
        for mine, theirs in zip(one.visits, two.visits, strict=True):
            assert (mine.client, mine.rejected, mine.staleness) == (theirs.client, theirs.rejected, theirs.staleness)
            assert abs(mine.step_fraction - theirs.step_fraction) <= 100 * allowed
            assert (mine.solver.steps, mine.solver.converged) == (theirs.solver.steps, theirs.solver.converged)
            assert mine.solver.message == theirs.solver.message
