"""SVI for many clients: one Adam step of all of them is one graph, captured once and replayed.

Every client keeps its own random numbers, learning rate and end, so that its answer is the one it would get alone, up
to rounding. Clients that are done leave the batch when half of it is.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pvi.capture import Captured
from pvi.engine import Engine
from pvi.families import Family
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem
from pvi.programs.local_reparameterisation import Layers
from pvi.solvers.draws import NoiseLanes
from pvi.solvers.lanes import Inputs, Lanes, Rows, pack, unpack
from pvi.solvers.plateau import Course, judge, report
from pvi.solvers.protocol import Solved
from pvi.solvers.svi_step import SVIState, draws, local_at, loss, noise_size, step
from pvi.stack import keep, kind, likelihood


class Options(NamedTuple):
    """What of the solver's options matters here; ``most`` steps for each client; ``layers`` that are drawn by row."""

    plain: bool
    learning_rate: float
    num_particles: int
    window: int
    most: list[int]
    layers: Layers | None


class ManyState(NamedTuple):
    """Adam's states of M clients, clients first, Σ offsets over the window, and the last step (under an alpha)."""

    offset: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor
    sums: Tensor
    moved: Tensor


class Fixed(NamedTuple):
    """What stays the same over a window's steps, clients first."""

    rate: Tensor
    origin: Tensor
    scale: Tensor
    cavity: Tensor


def units(family: Family, natural: Tensor, plain: bool) -> Tensor:
    """What an offset of 1 is in free coordinates: q's own standard deviations, and just 1 under plain Adam."""
    scale = family.free_scale(natural)
    return torch.ones_like(scale) if plain else scale


def init(origin: Tensor, alpha: float) -> ManyState:
    """No offset for any client, ``origin [M, num_free]``."""
    zero = torch.zeros_like(origin)
    return ManyState(
        zero, zero, zero, origin.new_zeros(len(origin)), zero, zero if alpha else origin.new_zeros(len(origin), 0)
    )


def many_step(problem: LocalProblem, given: Inputs, layers: Layers | None) -> Callable[..., tuple[Tensor, ...]]:
    """One step of all clients, (state, fixed, noise, *data) -> (state, F_m, rise), for data of the kind ``given``."""
    family = problem.family
    assert is_gaussian(family)

    def lane(state: ManyState, fixed: Fixed, noise: Tensor, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        data = unpack(given, values)

        def negative(offset: Tensor) -> Tensor:
            free = fixed.origin + fixed.scale * offset
            local = local_at(problem, layers, free)
            probability = likelihood(problem, data.tensors, data.weights, data.scale, data.rows, local)
            return loss(problem, fixed.cavity, free, draws(family, free, noise), probability)

        new, info = step(SVIState(*state[:4]), negative, fixed.rate)
        rise, moved = info.free_energy, state.moved
        if problem.alpha:
            rise, moved = info.gradient @ state.moved, new.offset - state.offset
        return *new, state.sums + new.offset, moved, info.free_energy, rise

    def all_lanes(*values: Tensor) -> tuple[Tensor, ...]:
        state, fixed, noise = ManyState(*values[:6]), Fixed(*values[6:10]), values[10]
        found: tuple[Tensor, ...] = torch.func.vmap(lane)(state, fixed, noise, values[11:])
        return found

    return all_lanes


@torch.no_grad()  # a model may hold parameters that nobody learns
def ascend(
    options: Options, lanes: Lanes, cavities: Tensor, starts: Tensor, seeds: Sequence[int], engine: Engine
) -> list[Solved]:
    """The solves of clients that share their data's shapes; ``cavities`` and ``starts`` are ``[M, num_natural]``."""
    problem, family, number = lanes.problem, lanes.problem.family, len(seeds)
    fixed = Fixed(starts[:, 0], family.free(starts), units(family, starts, options.plain), cavities)
    course = Course(options.learning_rate, plain=options.plain)
    state, courses = init(fixed.origin, problem.alpha), [course] * number
    noise = NoiseLanes(seeds, options.num_particles, noise_size(problem, options.layers, lanes.rows_a_step), starts)
    rows = Rows(lanes, seeds, starts)
    here, taken, solved = list(range(number)), 0, dict[int, Solved]()
    values, rises = list[Tensor](), list[Tensor]()
    while len(solved) < number:
        running = [index for index in here if index not in solved]
        if 2 * len(running) <= len(here):
            # Lanes that are free are filled up with clients that are done: their steps change nothing.
            kept = [*running, *[index for index in here if index in solved][: _lanes(here, running) - len(running)]]
            chosen = torch.tensor([here.index(index) for index in kept], device=starts.device)
            state, fixed = ManyState(*[part[chosen] for part in state]), Fixed(*[part[chosen] for part in fixed])
            values, rises = [part[chosen] for part in values], [part[chosen] for part in rises]
            noise.keep(chosen)
            rows.keep(chosen)
            here = kept
        fixed = fixed._replace(rate=starts.new_tensor([courses[index].rate for index in here]))
        end = min(taken - taken % options.window + options.window, *[options.most[index] for index in running])
        graph: Captured | None = None
        while taken < end:
            taken += 1
            numbers, given = noise.next(), rows.next()
            arguments = (*state, *fixed, numbers, *pack(given))
            graph = graph or _graph(problem, options, given, arguments, engine)
            *parts, value, rise = graph(*arguments)
            state = ManyState(*parts)
            values.append(value)
            rises.append(rise)
        whole = taken % options.window == 0
        window, climbs = torch.stack(values, 1), torch.stack(rises, 1) if problem.alpha else None
        for lane, index in enumerate(here):
            if index in solved or not (whole or taken == options.most[index]):
                continue
            courses[index] = judge(courses[index], window[lane], None if climbs is None else climbs[lane])
            if courses[index].over or taken == options.most[index]:
                offset = state.offset[lane] if options.plain else state.sums[lane] / window.shape[1]
                natural = family.natural_from_free(fixed.origin[lane] + fixed.scale[lane] * offset)
                solved[index] = natural, report(courses[index], taken)
        if whole:
            values, rises, state = [], [], state._replace(sums=torch.zeros_like(state.sums))
    return [solved[index] for index in range(number)]


def _lanes(here: Sequence[int], running: Sequence[int]) -> int:
    """The next smaller number of lanes: halves of the first, so that few graphs are needed."""
    size = len(here)
    while size > 1 and -(-size // 2) >= len(running):
        size = -(-size // 2)
    return size


def _graph(
    problem: LocalProblem, options: Options, given: Inputs, arguments: tuple[Tensor, ...], engine: Engine
) -> Captured:
    present = tuple(part is not None for part in (given.weights, given.rows))
    key = ("svi", kind(problem), options.num_particles, options.layers is not None, present)
    return engine.captured(key, keep(problem), lambda: many_step(problem, given, options.layers), arguments)
