"""What cannot be computed together runs in the loop: one message, the loop's answer."""

import logging

import pyro
import pyro.distributions as dist
import pytest
import torch
from together import binary, check_same, few, fit_both, outcomes, ran

import pvi
from pvi.executors import Auto, Loop, Vectorised, resolve_executor
from pvi.solvers import LBFGS, SVI, NotExactError


def location(like):
    return pyro.sample("loc", dist.Normal(like.new_zeros(()), 1.0))


def spread(like):
    return pyro.sample("spread", dist.LogNormal(like.new_zeros(()), 0.5))


def coefficients(x):
    return pyro.sample("weights", dist.Normal(x.new_zeros(x.shape[1]), 1.0).to_event(1))


def rows(y):
    return pyro.plate("rows", len(y))


def control_flow(x, y):
    weights = coefficients(x)
    f = torch.sin(x @ weights)
    if y.sum() > 3:
        f = 2 * f
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def a_number_from_a_tensor(x, y):
    """It vectorises, but it cannot be captured."""
    weights = coefficients(x)
    times = (torch.arange(3).sum() * 2).item()
    with rows(y):
        pyro.sample("y", dist.Bernoulli(logits=torch.sin(times * (x @ weights))), obs=y)


def chosen_rows(x, y):
    """As many rows as the data say."""
    weights = coefficients(x)
    some = x[:, 0] > -0.5
    with pyro.plate("chosen", int(some.sum())):
        pyro.sample("y", dist.Bernoulli(logits=torch.sin(x[some] @ weights)), obs=y[some])


def summed_out(x, y):
    means = pyro.sample("means", dist.Normal(y.new_zeros(2), 1.0).to_event(1))
    with rows(y):
        kind = pyro.sample("kind", dist.Bernoulli(y.new_tensor(0.4)), infer={"enumerate": "parallel"})
        pyro.sample("x", dist.Normal(means[0] * (1 - kind) + means[1] * kind, 1.0), obs=x[:, 0])


FALLBACKS = {
    "control flow": (control_flow, "its model cannot run for several clients at once: RuntimeError"),
    "a number from a tensor": (a_number_from_a_tensor, "its model cannot be captured as a graph: RuntimeError"),
    "chosen rows": (chosen_rows, "its model cannot run for several clients at once: RuntimeError"),
    "summed out": (summed_out, "its discrete latents are summed out, which has no batched form"),
}


def messages(caplog):
    return [record.message for record in caplog.records if "one client after the other" in record.message]


@pytest.mark.parametrize("name", FALLBACKS)
def test_models_that_run_in_the_loop(name, caplog):
    model, reason = FALLBACKS[name]
    with caplog.at_level(logging.INFO, logger="pvi"):
        loop, together = fit_both(model, binary(), solver=few(6), rounds=3)
    check_same(loop, together, allowed=0.0, executors={"loop"})
    (said,) = messages(caplog)
    assert said.startswith(f"local steps run one client after the other: {reason}")


def test_families_that_are_not_gaussian(caplog):
    def model(y):
        rate = pyro.sample("rate", dist.Gamma(y.new_tensor(2.0), 1.0))
        with rows(y):
            pyro.sample("y", dist.NegativeBinomial(rate, logits=y.new_tensor(0.0)), obs=y.abs().round())

    with caplog.at_level(logging.INFO, logger="pvi"):
        loop, together = fit_both(model, outcomes(), guide="conjugate", solver=few(6))
    assert ran(together) == {"loop"}
    assert torch.equal(loop.posterior.natural, together.posterior.natural)
    assert messages(caplog) == [
        "local steps run one client after the other: the draws of families that are not Gaussian have no batched form"
    ]


def test_solvers_that_work_on_one_client_at_a_time(caplog):
    def model(y):
        loc, scale = location(y), spread(y)
        with rows(y):
            pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)

    with caplog.at_level(logging.INFO, logger="pvi"):
        loop, together = fit_both(model, outcomes((4, 6)), solver=LBFGS(num_samples=32))
    check_same(loop, together, allowed=0.0, executors={"loop"})
    (said,) = messages(caplog)
    assert said.endswith("the local solver LBFGS works on one client at a time")


def counts_its_rows(y):
    loc, scale = location(y), spread(y)
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, loc / len(y), scale), obs=y)


def looks_across_rows(y):
    loc, scale = location(y), spread(y)
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, loc * y.std(), scale), obs=y)


def odd_numbers_of_rows(y):
    """Only a few clients of many sizes show it."""
    loc, scale = location(y), spread(y)
    with rows(y):
        pyro.sample("y", dist.StudentT(4.0, loc + len(y) % 2, scale), obs=y)


UNPADDED = {
    "counts its rows": (counts_its_rows, (2, 7, 7, 12)),
    "looks across rows": (looks_across_rows, (2, 7, 7, 12)),
    "odd numbers of rows": (odd_numbers_of_rows, (2, 4, 6, 7, 8, 10, 12, 14)),
}


@pytest.mark.parametrize("name", UNPADDED)
def test_models_that_padding_would_change(name):
    """Clients with equally many rows are still computed together, and nobody falls back."""
    model, sizes = UNPADDED[name]
    check_same(*fit_both(model, outcomes(sizes), solver=few(6)))


def test_kinds_of_clients_that_cannot_take_the_others_along():
    """Only those whose argument asks for control flow run in the loop."""

    def model(x, y, how):
        weights = coefficients(x)
        f = torch.sin(x @ weights)
        if how == "branch" and y.sum() > 3:
            f = 2 * f
        with rows(y):
            pyro.sample("y", dist.Bernoulli(logits=f), obs=y)

    data = [(x, y, "branch" if k % 2 else "plain") for k, (x, y) in enumerate(binary())]
    loop, together = fit_both(model, data, solver=few(6), rounds=1)
    check_same(loop, together, executors={"loop", "vectorised"})
    assert [visit.executor for visit in together.history[0].visits] == ["vectorised", "loop"] * 2


def test_auto_batches_where_that_pays():
    def model(y):
        loc, scale = location(y), spread(y)
        with rows(y):
            pyro.sample("y", dist.StudentT(4.0, loc, scale), obs=y)

    data = outcomes((4, 4, 4))
    for steps, chosen in ((5, "loop"), (100, "vectorised")):
        loop, automatic = fit_both(model, data, solver=SVI(steps=steps, num_particles=1), executor=Auto(), rounds=1)
        check_same(loop, automatic, allowed=1e-7, executors={chosen})


def test_errors_name_the_client_and_the_stage():
    with pytest.raises(NotExactError, match="client 'client 0': Newton needs a generalised linear model") as raised:
        pvi.fit(counts_its_rows, outcomes((4, 6)), solver="newton", executor=Vectorised(compile=False))
    assert raised.value.__notes__ == ["raised in the local solve of client 'client 0', visit 1"]


def test_options_and_names():
    with pytest.raises(ValueError, match="Vectorised: compile is True, False or 'auto', got 'always'"):
        Vectorised(compile="always")
    with pytest.raises(ValueError, match="Vectorised: max_clients_at_once must be at least 1, got 0"):
        Vectorised(max_clients_at_once=0)
    with pytest.raises(ValueError, match="unknown executor 'gpu'; there are auto, loop, vectorised"):
        resolve_executor("gpu")
    assert resolve_executor("vectorised").name == "vectorised"
    assert resolve_executor("loop") == Loop()
    own = Auto()
    assert resolve_executor(own) is own
