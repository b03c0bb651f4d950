"""A function of tensors captured once as a graph, compiled where that pays, replayed on a GPU."""

import logging
import shutil
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from pvi.replay import Replayed

logger = logging.getLogger("pvi")

Compile = bool | str
"""``True``, ``False``, or ``"auto"``: once a graph has run for as long as compiling it takes."""
WORTH = 10.0
"""Seconds a graph runs before ``"auto"`` compiles it: about what that takes."""
RECORDED_AT = 2
"""The call at which a function on a GPU is recorded: what compiles at its first call has done so."""

Function = Callable[..., tuple[Tensor, ...]]


def compiler() -> bool:
    """Whether there is what ``torch.compile`` needs on the CPU; on a GPU Triton comes with torch."""
    return any(shutil.which(name) for name in ("c++", "g++", "clang++"))


class Captured:
    """A captured function ``(*tensors) -> tensors``: same shapes, same answers, no Python of the original's.

    Arguments that the function changes in place are changed in place by every call.
    """

    def __init__(self, function: Function, example: tuple[Tensor, ...], compile: Compile) -> None:
        # Tensors are told apart by their identity: one that stands for two arguments must become two.
        self.graph = make_fx(function)(*[value.clone() for value in example])
        simplify(self.graph)
        self.run: Callable[..., Any] = self.graph
        self.compile = compile
        self.seconds = 0.0
        self.device = example[0].device
        self.calls = 0
        self.compiled = False
        if compile is True:
            self._compile()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The function's outputs."""
        self.calls += 1
        if self.device.type == "cuda" and self.calls == RECORDED_AT:
            self._record(tensors)
        if self.compile != "auto" or self.compiled:
            found: tuple[Tensor, ...] = self.run(*tensors)
            return found
        began = time.perf_counter()
        found = self.run(*tensors)
        self.seconds += time.perf_counter() - began
        if self.seconds > WORTH:
            self._compile()
        return found

    def _record(self, tensors: tuple[Tensor, ...]) -> None:
        try:
            self.run = Replayed(self.run, tensors)
        except RuntimeError as error:
            say_once(f"no CUDA graph could be recorded ({str(error).splitlines()[0]}): kernels are launched one by one")

    def _compile(self) -> None:
        self.compiled, self.calls = True, 0
        if self.device.type == "cpu" and not compiler():
            say_once("no C++ compiler is here: steps run captured, not compiled")
            return
        separate(self.graph)
        compiled = torch.compile(self.graph, dynamic=False)

        def first(*tensors: Tensor) -> Any:
            """Compiling waits for the first call; where it fails, the graph serves."""
            say_once("compiling local steps, which takes seconds to a minute, once for clients of a kind and number")
            try:
                # The compiler's own, and where warnings are errors they would keep it from compiling.
                with warnings.catch_warnings(action="ignore"):
                    found = compiled(*tensors)
            except Exception as error:
                reason = next(iter(str(error).splitlines()), "")
                say_once(f"compiling failed ({type(error).__name__}: {reason}): steps run captured, not compiled")
                self.run = self.graph
                return self.graph(*tensors)
            self.run = compiled
            return found

        self.run = first


VIEWS = {
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.expand.default,
    torch.ops.aten.permute.default,
    torch.ops.aten.slice.Tensor,
    torch.ops.aten.squeeze.dim,
}


def simplify(module: torch.fx.GraphModule) -> None:
    """Take out views that show their tensor as it is: transforms leave many, and small steps feel each.

    Products with a narrow right side are turned over, (A B)ᵀ = Bᵀ Aᵀ: MKL is up to ten times as fast so.
    """
    for node in list(module.graph.nodes):
        first = node.args[0] if node.args else None
        if not isinstance(first, torch.fx.Node):
            continue
        before, after = (one.meta.get("tensor_meta") for one in (first, node))
        if before is None or after is None:
            continue
        if node.target in VIEWS and before.shape == after.shape and before.stride == after.stride:
            node.replace_all_uses_with(first)
            module.graph.erase_node(node)
        elif node.target is torch.ops.aten.bmm.default and after.shape[2] < after.shape[1]:
            _turn_over(module.graph, node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _turn_over(graph: torch.fx.Graph, product: torch.fx.Node) -> None:
    def turned(node: Any) -> torch.fx.Node:
        return graph.call_function(torch.ops.aten.permute.default, (node, [0, 2, 1]))

    with graph.inserting_before(product):
        left, right = product.args
        inner = graph.call_function(torch.ops.aten.bmm.default, (turned(right), turned(left)))
        inner.meta[SIZES] = _sizes(product)
        other = turned(inner)
        # In memory as the product was: views of it were captured for that layout.
        layout: dict[str, Any] = {"memory_format": torch.contiguous_format}
        other = graph.call_function(torch.ops.aten.clone.default, (other,), layout)
        other.meta |= product.meta
    product.replace_all_uses_with(other)
    graph.erase_node(product)


SIZES = "clients and numbers"
FEW, LARGE = 16, 2**18
"""Clients, and numbers of one client's matrix that no longer fit into a core's cache."""


def separate(module: torch.fx.GraphModule) -> None:
    """Products of few large matrices one by one.

    The compiler makes sums of products with vectors by itself, which pass over a matrix several times: ten times as
    slow as MKL for 10,000 rows and 100 columns.
    """
    graph = module.graph
    for node in [one for one in graph.nodes if one.target is torch.ops.aten.bmm.default]:
        clients, numbers = _sizes(node)
        if clients > FEW or numbers < LARGE:
            continue
        with graph.inserting_before(node):

            def part(side: Any, client: int) -> torch.fx.Node:
                return graph.call_function(torch.ops.aten.select.int, (side, 0, client))

            products = [
                graph.call_function(torch.ops.aten.mm.default, tuple(part(side, client) for side in node.args))
                for client in range(clients)
            ]
            together = graph.call_function(torch.ops.aten.stack.default, (products,))
        node.replace_all_uses_with(together)
        graph.erase_node(node)
    module.recompile()


def _sizes(product: torch.fx.Node) -> tuple[int, int]:
    """The number of matrices, and the numbers of the larger factor's."""
    if SIZES in product.meta:
        found: tuple[int, int] = product.meta[SIZES]
        return found
    shapes = [one.meta["tensor_meta"].shape for one in product.args if isinstance(one, torch.fx.Node)]
    return shapes[0][0], max(shape[1] * shape[2] for shape in shapes)


_said: set[str] = set()


def say_once(message: str) -> None:
    """Log a message unless it has been logged before in this process."""
    if message not in _said:
        _said.add(message)
        logger.info(message)
