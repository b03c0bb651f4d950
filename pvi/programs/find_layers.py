"""Find the layers of a program whose pre-activations can be drawn row by row, and try out that they can."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pvi.families import DiagonalGaussian, Family, Product
from pvi.programs.batch import Batch
from pvi.programs.handlers import Followed, Following
from pvi.programs.layers import Plan, plan, read_layer
from pvi.programs.local_reparameterisation import Call, Layers, NotLocal, by_site, drawing
from pvi.programs.program import Program, site_nodes

PATTERNS = 4
"""Halves of the rows whose noise is exchanged to see that rows do not mix; 16 rows and fewer are told apart surely."""


def find_layers(program: Program, family: Family, batch: Batch, like: Tensor) -> Layers | NotLocal:
    """The layers whose pre-activations can be drawn row by row under ``family``, or why there are none.

    Weights qualify that are real and independent Gaussians under q (a diagonal Gaussian member), and enter one linear
    layer and nothing else; all others keep their plain draws. Costs about ten runs of the program at random points of
    the dtype and device of ``like``. What is found serves any number of rows.
    """
    if program.sites.subsampling or program.sites.enumerated:
        return NotLocal("it has a plate that subsamples, or discrete latents that are summed out")
    names = _candidates(program, family)
    if not names:
        return NotLocal("no site has independent Gaussians in its own space for its approximation")
    generator = torch.Generator(device=like.device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

    size, rows = program.coordinates.size, batch.num_rows
    x = 0.1 * normal(size)
    try:
        layers, local = _examine(program, names, batch, x)
        if not layers.sites:
            return NotLocal(f"none of the sites {list(names)} enters one linear layer, rows first, and nothing else")
        loc, spread, first, second = 0.1 * normal(size), 0.1 * normal(size), *normal(2, rows, layers.num_noise)

        def densities(noise: Tensor) -> Tensor:
            # What is drawn by row must not matter otherwise: it gets another value each time.
            point = torch.where(local, normal(size), x)
            with torch.no_grad(), drawing(program, layers, (loc, spread.abs(), spread), noise):
                return _elements(program, point, batch)

        apart = densities(first), densities(second)
        order = torch.randperm(rows, generator=generator, device=like.device)[:, None]
        for bit in range(min(PATTERNS, max(1, (rows - 1).bit_length()))):
            half = (order >> bit) % 2 == 0
            mixed = densities(torch.where(half, first, second)) + densities(torch.where(half, second, first))
            scale = 1 + apart[0].abs() + apart[1].abs()
            # False for NaN too.
            if not bool(((mixed - apart[0] - apart[1]).abs() <= 1e3 * torch.finfo(like.dtype).eps * scale).all()):
                return NotLocal("a row's density depends on other rows of its layers, or on its weights otherwise")
    except Exception as error:
        # Programs may raise whatever they like where their weights are no ordinary draws.
        return NotLocal(f"its layers cannot be taken apart: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return layers


def _candidates(program: Program, family: Family) -> tuple[str, ...]:
    by_row = {site.name for site in (*program.sites.shared, *program.sites.private) if site.by_row}
    independent = _independent(family)
    sizes = [site.size for site in program.coordinates.sites]
    parts = zip(program.coordinates.sites, torch.tensor(independent).split(sizes), strict=True)
    return tuple(site.name for site, part in parts if site.is_real and site.name not in by_row and bool(part.all()))


def _independent(family: Family) -> list[bool]:
    if isinstance(family, Product):
        return [known for member in family.members for known in _independent(member)]
    return [isinstance(family, DiagonalGaussian)] * family.size


def _examine(program: Program, names: tuple[str, ...], batch: Batch, x: Tensor) -> tuple[Layers, Tensor]:
    """One run with the indices of x in the weights' places; the layers, and which elements of x they draw by row."""
    size, rows = len(x), batch.num_rows
    uses = torch.zeros(size, dtype=torch.long)
    seen: list[tuple[Plan | None, tuple[int, ...], list[Followed]]] = []

    def use(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], found: list[Followed]) -> Any:
        outputs = function(*args, **kwargs)
        layer = read_layer(function, args, kwargs, lambda value: any(value is one.value for one in found))
        how = None if layer is None else plan(layer, outputs, rows)
        shape = () if layer is None else tuple(layer.inputs.shape[1:])
        if layer is not None:
            # Weight first, then bias: as drawing needs them.
            found = sorted(found, key=lambda one: one.value is not layer.weight)
        for one in found:
            uses[one.parts[0].flatten()] += 1 if how else 2
        seen.append((how, shape, found))
        return outputs

    with Following(by_site(program, names, torch.arange(size)), use):
        _elements(program, x, batch)
    local, calls = torch.zeros(size, dtype=torch.bool), []
    for how, shape, found in seen:
        sites = tuple(one.site for one in found)
        once = [bool((uses[one.parts[0]] == 1).all()) for one in found]
        if how is None or not once[0]:
            calls.append(Call(sites))
            continue
        for one in found[: sum(once)]:
            local[one.parts[0].flatten()] = True
        calls.append(Call(sites, how.draw, shape, how.num_noise + how.num_bias_noise * (sum(once) - 1), sum(once) > 1))
    covered = tuple(name for name, index in by_site(program, names, local).items() if bool(index[0].any()))
    return Layers(covered, sum(call.num_noise for call in calls), names, tuple(calls)), local.to(x.device)


def _elements(program: Program, x: Tensor, batch: Batch) -> Tensor:
    """The log densities of the likelihood, element by element as far as they can be told apart."""
    nodes = site_nodes(program, program.coordinates.constrain(x), batch, program.likelihood_sites)
    parts = []
    for node in nodes.values():
        fn = node["fn"]
        while node["mask"] is None and isinstance(fn, torch.distributions.Independent):
            fn = fn.base_dist
        log_prob = node["log_prob"] if fn is node["fn"] else fn.log_prob(node["value"]) * node["scale"]
        parts.append(log_prob.flatten())
    return torch.cat(parts)
