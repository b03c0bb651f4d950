"""Captured graphs compute what was captured, views and products rearranged, compiled or not, whatever goes wrong."""

import logging

import pyro
import pyro.distributions as dist
import pytest
import torch
from together import check_same, fit_both, numbers, outcomes
from torch.fx.experimental.proxy_tensor import make_fx

from pvi import capture
from pvi.capture import Captured, simplify
from pvi.engine import Engine
from pvi.executors import Vectorised
from pvi.solvers import SVI
from pvi.stack import NotVectorisable


def views_of_views(x):
    """Views that show nothing new, of views, returned and used again."""
    same = x.view(x.shape).expand(x.shape).permute(0, 1)[0:3]
    return same + x, same.view(-1).view(x.shape), same


def written_through_a_view(x):
    """A view that shows nothing new is written to: its tensor changes too."""
    base = x * 2.0
    same = base.view(base.shape)
    same.add_(1.0)
    base[0].mul_(3.0)
    return base, same * 1.0, x + 0.0


def filled_in_place(x):
    """Only side effects lead to the result."""
    found = torch.empty_like(x)
    found.copy_(x)
    found[1] = x[0]
    found.view(-1)[2:4].zero_()
    return (found,)


def turned(x):
    """A batched product with a narrow right side, viewed and written to afterwards."""
    product = torch.bmm(x.expand(2, 3, 4), x.mT[:, :2].expand(2, 4, 2))
    flat = product.view(2, 6)
    flat[:, 0].add_(1.0)
    return product, flat, product.view(-1)


def a_vector(x):
    """A batched product of matrices and vectors, as transforms make them."""
    return torch.bmm(x.expand(5, 3, 4), x[0].expand(5, 4)[..., None])[..., 0], torch.func.vmap(torch.mv)(
        x.expand(2, 3, 4), x[:2]
    )


FUNCTIONS = [views_of_views, written_through_a_view, filled_in_place, turned, a_vector]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_simplified_graphs_give_the_same(function):
    x, other = numbers(3, 4), numbers(3, 4, seed=1)
    graph = make_fx(function)(x.clone())
    simplify(graph)
    for value in (x, other):
        given = value.clone()
        for mine, theirs in zip(graph(given), function(value.clone()), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-14, atol=1e-14)
            assert mine.stride() == theirs.stride()
        assert torch.equal(given, value)


def test_views_that_show_nothing_new_are_taken_out():
    graph = make_fx(views_of_views)(numbers(3, 4))
    simplify(graph)
    left = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    # One sum, and the way to a vector and back.
    assert left == [torch.ops.aten.add.Tensor, torch.ops.aten.view.default, torch.ops.aten.view.default]


def test_one_tensor_in_two_places_is_two():
    x = numbers(3)
    captured = Captured(lambda a, b: (a + 2 * b,), (x, x), compile=False)
    assert torch.equal(captured(x, numbers(3, seed=1))[0], x + 2 * numbers(3, seed=1))


def test_graphs_are_kept_by_key_and_shape(monkeypatch):
    engine, made = Engine(False), []

    def function(*values):
        made.append(tuple(value.shape for value in values))
        return (sum(values),)

    for shape in (2, 3, 2, 3):
        engine.captured("sum", None, lambda: function, (numbers(shape),))
    engine.captured("sum", None, lambda: function, (numbers(2).float(),))
    assert len(made) == 3
    monkeypatch.setattr("pvi.engine.MAX_GRAPHS", 2)
    engine.captured("other", None, lambda: function, (numbers(2),))
    engine.captured("other", None, lambda: function, (numbers(2),))
    assert len(made) == 4
    assert len(engine._graphs) <= 3


def test_what_cannot_be_captured_says_so():
    with pytest.raises(NotVectorisable, match="its model cannot be captured as a graph: RuntimeError"):
        Engine(False).captured("item", None, lambda: lambda x: (x * x.sum().item(),), (numbers(3),))


def robust(y):
    loc = pyro.sample("loc", dist.Normal(y.new_zeros(()), 1.0))
    spread = pyro.sample("spread", dist.LogNormal(y.new_zeros(()), 0.5))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, loc, spread), obs=y)


SHORT = SVI(steps=10, num_particles=2, window=4)


def said(caplog):
    return [record.message for record in caplog.records if "captured, not compiled" in record.message]


@pytest.mark.parametrize("compile", [True, "auto"])
def test_without_a_compiler_graphs_run_as_they_are(compile, monkeypatch, caplog):
    monkeypatch.setattr(capture.shutil, "which", lambda name: None)
    monkeypatch.setattr(capture, "WORTH", 0.0)
    monkeypatch.setattr(capture, "_said", set())
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("there is no compiler"))
    with caplog.at_level(logging.INFO, logger="pvi"):
        check_same(*fit_both(robust, outcomes(), executor=Vectorised(compile=compile), solver=SHORT))
    assert said(caplog) == ["no C++ compiler is here: steps run captured, not compiled"]


def test_where_compiling_fails_graphs_run_as_they_are(monkeypatch, caplog):
    def broken(graph, **options):
        def run(*tensors):
            raise RuntimeError("no such header")

        return run

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr(capture, "compiler", lambda: True)
    monkeypatch.setattr(capture, "_said", set())
    with caplog.at_level(logging.INFO, logger="pvi"):
        check_same(*fit_both(robust, outcomes(), executor=Vectorised(compile=True), solver=SHORT))
    assert said(caplog) == ["compiling failed (RuntimeError: no such header): steps run captured, not compiled"]


def test_auto_compiles_what_has_run_for_long(monkeypatch):
    """The graph serves until then, and the compiled one from then on."""
    calls = []

    def counted(graph, **options):
        def run(*tensors):
            calls.append(len(tensors))
            return graph(*tensors)

        return run

    monkeypatch.setattr(torch, "compile", counted)
    monkeypatch.setattr(capture, "compiler", lambda: True)
    monkeypatch.setattr(capture, "WORTH", 1e9)
    check_same(*fit_both(robust, outcomes(), executor=Vectorised(compile="auto"), solver=SHORT))
    assert not calls
    monkeypatch.setattr(capture, "WORTH", 0.0)
    check_same(*fit_both(robust, outcomes(), executor=Vectorised(compile="auto"), solver=SHORT))
    # Two rounds of ten steps: the first step shows how long one takes.
    assert len(calls) >= 19


needs_compiler = pytest.mark.skipif(not capture.compiler(), reason="there is no C++ compiler")


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("compile", [True, "auto"])
@pytest.mark.parametrize("guide", [None, "full"])
def test_compiled_steps_give_the_loops_answer(compile, guide, monkeypatch):
    """Fused kernels round differently: 1e-7 standard deviations after a few Adam steps."""
    monkeypatch.setattr(capture, "WORTH", 0.01)
    executor = Vectorised(compile=compile)
    solver = SVI(steps=30, num_particles=2, window=10, learning_rate=0.02)
    check_same(*fit_both(robust, outcomes((2, 9, 9, 30)), guide=guide, executor=executor, solver=solver), allowed=1e-7)
    graphs = [graph for _, graph in executor.engine._graphs.values()]
    assert any(graph.compiled for graph in graphs)
    assert all(graph.run is not graph.graph for graph in graphs if graph.compiled)


@needs_compiler
@pytest.mark.slow
def test_compiled_mini_batches_and_clients_that_leave():
    solver = SVI(epochs=12, batch_size=3, num_particles=2, window=5, learning_rate=0.1)
    data = [(scale * numbers(n, seed=n),) for n, scale in ((4, 1.0), (5, 3.0), (9, 0.1), (20, 1.0), (6, 2.0))]
    loop, together = fit_both(robust, data, executor=Vectorised(compile=True), solver=solver, rounds=1)
    assert len({visit.solver.steps for visit in loop.history[0].visits}) > 2
    check_same(loop, together, allowed=1e-6)


def test_products_of_few_large_matrices_are_computed_one_by_one(monkeypatch):
    from pvi import capture

    def products(x, w):
        return torch.bmm(x, w).tanh(), torch.bmm(x.mT, torch.bmm(x, w))

    monkeypatch.setattr(capture, "LARGE", 60)
    x, w = torch.randn(3, 20, 4, dtype=torch.float64), torch.randn(3, 4, 1, dtype=torch.float64)
    graph = Captured(products, (x, w), False)
    before = graph(x, w)
    capture.separate(graph.graph)
    targets = [node.target for node in graph.graph.graph.nodes]
    assert torch.ops.aten.mm.default in targets
    assert torch.ops.aten.bmm.default not in targets
    for one, other, plain in zip(before, graph(x, w), products(x, w), strict=True):
        torch.testing.assert_close(one, plain, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(other, plain, rtol=1e-12, atol=1e-12)
