"""What one executor keeps between runs is never taken for what another run would find; auto's choices; messages."""

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from together import F64, binary, check_same, few, fit_both, outcomes

from pvi.capture import Captured
from pvi.executors import EXECUTORS, Vectorised, resolve_executor
from pvi.problem import build_problem
from pvi.solvers import SVI


class Curved(PyroModule):
    """A model with a number, a tensor and a buffer of its own, none of which is an argument."""

    def __init__(self):
        super().__init__()
        self.width = 1.0
        self.level = torch.zeros((), dtype=F64)
        self.register_buffer("slope", torch.ones((), dtype=F64))

    def forward(self, x, y):
        weights = pyro.sample("weights", dist.Normal(x.new_zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            loc = torch.sin(2 * self.slope * (x @ weights)) + 2 * self.level
            pyro.sample("y", dist.StudentT(4.0, loc, self.width), obs=y)


CHANGES = {
    "number": lambda model: setattr(model, "width", 5.0),
    "tensor": lambda model: setattr(model, "level", torch.ones((), dtype=F64)),
    "tensor in place": lambda model: model.level.fill_(1.0),
    "buffer": lambda model: setattr(model, "slope", torch.full((), 3.0, dtype=F64)),
    "buffer in place": lambda model: model.slope.fill_(3.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_changes_between_runs(name):
    """The same function, the same data, one executor; what the function reads besides its arguments is new."""
    model, data, executor = Curved(), binary((3, 5)), Vectorised(compile=False)
    options = {"executor": executor, "rounds": 1, "solver": few(4)}
    first, _ = fit_both(model, data, **options)
    CHANGES[name](model)
    second, together = fit_both(model, data, **options)
    assert (first.posterior.natural - second.posterior.natural).abs().max() > 0.01
    check_same(second, together)


def rows_of_their_own(y):
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    with pyro.plate("rows", len(y)):
        own = pyro.sample("own", dist.Normal(loc.expand(len(y)), 0.5), infer={"pvi": "private"})
        pyro.sample("y", dist.StudentT(4.0, own, 1.0), obs=y)


def test_a_capture_for_every_size_must_pay():
    """Twelve short solves of clients with 12 different numbers of rows are slower together where none is padded."""

    def problems_of(model, data):
        return list(build_problem(model, data, None, torch.device("cpu"), F64).clients.values())

    sizes, short, long = range(20, 32), few(20), SVI(steps=300)
    by_row = problems_of(rows_of_their_own, outcomes(sizes))
    padded = problems_of(Curved(), binary(sizes))
    assert short.pays_together(padded)
    assert not short.pays_together(by_row)
    assert long.pays_together(by_row)
    assert not few(20, local_reparameterisation=True).pays_together(padded)
    assert few(20, local_reparameterisation=True, batch_size=10).pays_together(padded)


@pytest.mark.parametrize("wrong", [None, 0, Vectorised, type(EXECUTORS["loop"]())])
def test_what_is_no_executor(wrong):
    with pytest.raises(TypeError, match=r"executor is a name or an Executor, got .* is called, as in"):
        resolve_executor(wrong)


def test_warnings_of_the_compiler_stay_its_own(monkeypatch):
    """They neither reach the screen nor, where warnings are errors as here, keep a step from being compiled."""

    def compiling(graph, dynamic):
        def run(*tensors):
            warnings.warn("torch's own", FutureWarning, stacklevel=1)
            return graph(*tensors)

        return run

    monkeypatch.setattr(torch, "compile", compiling)
    monkeypatch.setattr("pvi.capture.compiler", lambda: True)
    x = torch.ones(2, dtype=F64)
    captured = Captured(lambda x: (2 * x,), (x,), True)
    assert torch.equal(captured(x)[0], 2 * x)
    assert captured.run is not captured.graph
