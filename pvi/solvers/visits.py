"""A visit of a fixed number of gradient steps on mini-batches: one client's, or one graph for many.

What a step does is the method's affair (:class:`~pvi.solvers.rule.Rule`); rows, noise and batching are the same for all
of them.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pvi.capture import Captured
from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.programs.find_layers import find_layers
from pvi.programs.local_reparameterisation import Layers, NotLocal
from pvi.programs.program import num_rows
from pvi.programs.weighted import refill
from pvi.solvers.draws import NoiseLanes, minibatches, noise, noise_generator, row_generator
from pvi.solvers.lanes import Inputs, Lanes, Rows, lanes_of, pack, rows_a_step, unpack
from pvi.solvers.personal import Given, Visit
from pvi.solvers.protocol import SolverInfo
from pvi.solvers.rule import Begun, Likelihood, Rule
from pvi.solvers.svi_step import likelihood_of_rows, noise_size
from pvi.stack import Local, keep, kind, likelihood

EXAMINED = 16
"""Rows at which layers are looked for."""


def layers_of(rule: Rule, problem: LocalProblem, like: Tensor) -> Layers | None:
    """The model's layers where the rule asks for them.

    Raises ``ValueError`` where they shall be drawn by row and there are none.
    """
    if rule.by_layer is None:
        return None
    head = problem.batch.take(torch.arange(min(problem.batch.num_rows, EXAMINED), device=like.device))
    found = find_layers(problem.program, problem.family, head, like)
    if isinstance(found, NotLocal):
        if rule.by_layer == "squares":
            return None
        raise ValueError(
            f"client {problem.client!r}: local_reparameterisation has nothing to draw row by row: {found.reason}; "
            "leave the option out"
        )
    return found


@torch.no_grad()  # a model may hold parameters that nobody learns
def visit(rule: Rule, problem: LocalProblem, given: Given) -> Visit:
    """One client's steps, one after the other: the reference."""
    sent, seed = given.natural, given.seed
    total, size = num_rows(problem.program, problem.batch), rows_a_step(rule.batch_size, problem)
    layers = layers_of(rule, problem, sent)
    drawn_by_row = layers if rule.by_layer == "noise" else None
    begun = rule.begin(problem, given, size or total)._replace(layers=layers)
    numbers = noise_size(problem, drawn_by_row, size or total)
    rows = minibatches(total, size, row_generator(seed, sent.device))
    noises = noise(rule.num_particles, numbers, noise_generator(seed, sent.device), sent)
    values = list[Tensor]()
    for _, chosen, drawn in zip(range(rule.steps(total)), rows, noises, strict=False):

        def at(loc: Tensor, sd: Tensor, chosen: Tensor | None = chosen) -> Callable[[Tensor], Tensor]:
            return likelihood_of_rows(problem, chosen, None if drawn_by_row is None else Local(drawn_by_row, loc, sd))

        batch, scale = problem.batch, 1.0
        if chosen is not None and problem.program.sites.subsampling is None:
            batch, scale = batch.take(chosen), total / len(chosen)
        state, value = rule.step(problem, begun, drawn, Likelihood(at, batch, None, scale, layers))
        begun = begun._replace(state=state)
        values.append(value)
    return _visit(rule, problem, begun, given, values)


@torch.no_grad()
def visit_many(
    rule: Rule,
    problems: Sequence[LocalProblem],
    given: Sequence[Given],
    engine: Engine,
) -> list[Visit]:
    """What :func:`visit` gives for each client, up to rounding: a step of all of them is one captured graph."""
    found: dict[int, Visit] = {}
    groups: dict[int, list[int]] = {}
    for index, problem in enumerate(problems):
        groups.setdefault(rule.steps(num_rows(problem.program, problem.batch)), []).append(index)
    for steps, positions in groups.items():
        chosen = [problems[index] for index in positions]
        sizes = [rows_a_step(rule.batch_size, problem) for problem in chosen]
        starts = [given[index].natural for index in positions]
        for lanes in lanes_of(chosen, starts, sizes, engine, pad=rule.by_layer != "noise"):
            members = [positions[index] for index in lanes.members]
            begun = [_begin(rule, problems[k], given[k], lanes.batch_size) for k in members]
            solved = _together(rule, lanes, begun, [given[index].seed for index in members], steps, engine)
            for index, (one, values) in zip(members, solved, strict=True):
                found[index] = _visit(rule, problems[index], one, given[index], values)
    return [found[index] for index in range(len(problems))]


def _together(
    rule: Rule, lanes: Lanes, begun: Sequence[Begun], seeds: Sequence[int], steps: int, engine: Engine
) -> list[tuple[Begun, list[Tensor]]]:
    problem, like = lanes.problem, begun[0].state[0]
    layers = layers_of(rule, problem, like)
    state = tuple(torch.stack(parts) for parts in zip(*[one.state for one in begun], strict=True))
    fixed = tuple(torch.stack(parts) for parts in zip(*[one.fixed for one in begun], strict=True))
    drawn_by_row = layers if rule.by_layer == "noise" else None
    noises = NoiseLanes(seeds, rule.num_particles, noise_size(problem, drawn_by_row, lanes.rows_a_step), like)
    rows = Rows(lanes, seeds, like)
    graph: Captured | None = None
    values = list[Tensor]()
    for _ in range(steps):
        drawn, given = noises.next(), rows.next()
        arguments = (*state, *fixed, drawn, *pack(given))
        graph = graph or _graph(rule, problem, layers, given, (len(state), len(fixed)), arguments, engine)
        *parts, value = graph(*arguments)
        state = tuple(parts) or state
        values.append(value)
    whole = torch.stack(values, 1)
    return [
        # Copies: a view of one client's part would keep everybody's.
        (Begun(tuple(part[lane].clone() for part in state), one.fixed, layers), list(whole[lane]))
        for lane, one in enumerate(begun)
    ]


def _graph(
    rule: Rule,
    problem: LocalProblem,
    layers: Layers | None,
    given: Inputs,
    sizes: tuple[int, int],
    arguments: tuple[Tensor, ...],
    engine: Engine,
) -> Captured:
    present = tuple(part is not None for part in (given.weights, given.rows))
    key = ("local steps", rule, kind(problem), present)
    return engine.captured(key, keep(problem), lambda: _many_step(rule, problem, layers, given, sizes), arguments)


def _many_step(
    rule: Rule, problem: LocalProblem, layers: Layers | None, like: Inputs, sizes: tuple[int, int]
) -> Callable[..., tuple[Tensor, ...]]:
    """One step of all clients, (state, fixed, noise, *data) -> (state, objective).

    On the CPU the state changes in place, and only the objective is returned.
    """

    def lane(
        state: tuple[Tensor, ...], fixed: tuple[Tensor, ...], numbers: Tensor, *values: Tensor
    ) -> tuple[Tensor, ...]:
        data = unpack(like, values)

        def at(loc: Tensor, sd: Tensor) -> Callable[[Tensor], Tensor]:
            local = Local(layers, loc, sd) if layers is not None and rule.by_layer == "noise" else None
            return likelihood(problem, data.tensors, data.weights, data.scale, data.rows, local)

        rows = Likelihood(at, refill(problem.batch, data.tensors), data.weights, data.scale, layers)
        new, value = rule.step(problem, Begun(state, fixed), numbers, rows)
        return *new, value

    def all_lanes(*values: Tensor) -> tuple[Tensor, ...]:
        first, second = sizes[0], sizes[0] + sizes[1]
        found: tuple[Tensor, ...] = torch.func.vmap(lane)(
            values[:first], values[first:second], values[second], *values[second + 1 :]
        )
        if values[0].device.type != "cpu":  # what a CUDA graph records must change no argument
            return found
        # Into the same memory every time: new pages cost more than the copy, which a compiler leaves out.
        for old, new in zip(values[:first], found[:-1], strict=True):
            old.copy_(new)
        return found[-1:]

    return all_lanes


def _begin(rule: Rule, problem: LocalProblem, given: Given, size: int | None) -> Begun:
    return rule.begin(problem, given, size or num_rows(problem.program, problem.batch))


def _visit(rule: Rule, problem: LocalProblem, begun: Begun, given: Given, values: Sequence[Tensor]) -> Visit:
    natural, personal, beside, message = rule.end(problem, begun, given)
    objective = torch.stack(list(values)).mean().item()
    return Visit(natural, personal, SolverInfo(len(values), objective, True, message), beside)
