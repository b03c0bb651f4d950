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
from pvi.solvers.draws import NoiseLanes, minibatches, noise, noise_generator, row_generator
from pvi.solvers.lanes import Inputs, Lanes, Rows, lanes_of, pack, rows_a_step, unpack
from pvi.solvers.personal import Personal, Visit
from pvi.solvers.protocol import SolverInfo
from pvi.solvers.rule import Begun, Rule
from pvi.solvers.svi_step import likelihood_of_rows, noise_size
from pvi.stack import Local, keep, kind, likelihood

EXAMINED = 16
"""Rows at which layers are looked for."""


def layers_of(rule: Rule, problem: LocalProblem, like: Tensor) -> Layers | None:
    """The layers that are drawn by row; raises ``ValueError`` where that is asked for and there are none."""
    if not rule.local_reparameterisation:
        return None
    head = problem.batch.take(torch.arange(min(problem.batch.num_rows, EXAMINED), device=like.device))
    found = find_layers(problem.program, problem.family, head, like)
    if isinstance(found, NotLocal):
        raise ValueError(
            f"client {problem.client!r}: local_reparameterisation has nothing to draw row by row: {found.reason}; "
            "leave the option out"
        )
    return found


@torch.no_grad()  # a model may hold parameters that nobody learns
def visit(rule: Rule, problem: LocalProblem, sent: Tensor, personal: Personal | None, seed: int) -> Visit:
    """One client's steps, one after the other: the reference."""
    total, size = num_rows(problem.program, problem.batch), rows_a_step(rule.batch_size, problem)
    layers = layers_of(rule, problem, sent)
    begun = rule.begin(problem, sent, personal, size or total, seed)
    numbers = noise_size(problem, layers, size or total)
    rows = minibatches(total, size, row_generator(seed, sent.device))
    noises = noise(rule.num_particles, numbers, noise_generator(seed, sent.device), sent)
    values = list[Tensor]()
    for _, chosen, drawn in zip(range(rule.steps(total)), rows, noises, strict=False):

        def at(loc: Tensor, sd: Tensor, chosen: Tensor | None = chosen) -> Callable[[Tensor], Tensor]:
            return likelihood_of_rows(problem, chosen, None if layers is None else Local(layers, loc, sd))

        state, value = rule.step(problem, begun, drawn, at)
        begun = begun._replace(state=state)
        values.append(value)
    return _visit(rule, problem, begun, sent, values)


@torch.no_grad()
def visit_many(
    rule: Rule,
    problems: Sequence[LocalProblem],
    sent: Sequence[Tensor],
    personal: Sequence[Personal | None],
    seeds: Sequence[int],
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
        starts = [sent[index] for index in positions]
        for lanes in lanes_of(chosen, starts, sizes, engine, pad=not rule.local_reparameterisation):
            members = [positions[index] for index in lanes.members]
            begun = [_begin(rule, problems[k], sent[k], personal[k], lanes.batch_size, seeds[k]) for k in members]
            solved = _together(rule, lanes, begun, [seeds[index] for index in members], steps, engine)
            for index, (one, values) in zip(members, solved, strict=True):
                found[index] = _visit(rule, problems[index], one, sent[index], values)
    return [found[index] for index in range(len(problems))]


def _together(
    rule: Rule, lanes: Lanes, begun: Sequence[Begun], seeds: Sequence[int], steps: int, engine: Engine
) -> list[tuple[Begun, list[Tensor]]]:
    problem, like = lanes.problem, begun[0].state[0]
    layers = layers_of(rule, problem, like)
    state = tuple(torch.stack(parts) for parts in zip(*[one.state for one in begun], strict=True))
    fixed = tuple(torch.stack(parts) for parts in zip(*[one.fixed for one in begun], strict=True))
    noises = NoiseLanes(seeds, rule.num_particles, noise_size(problem, layers, lanes.rows_a_step), like)
    rows = Rows(lanes, seeds, like)
    graph: Captured | None = None
    values = list[Tensor]()
    for _ in range(steps):
        drawn, given = noises.next(), rows.next()
        arguments = (*state, *fixed, drawn, *pack(given))
        graph = graph or _graph(rule, problem, layers, given, (len(state), len(fixed)), arguments, engine)
        *parts, value = graph(*arguments)
        state = tuple(parts)
        values.append(value)
    whole = torch.stack(values, 1)
    return [
        # Copies: a view of one client's part would keep everybody's.
        (Begun(tuple(part[lane].clone() for part in state), one.fixed), list(whole[lane]))
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
    """One step of all clients, (state, fixed, noise, *data) -> (state, objective)."""

    def lane(
        state: tuple[Tensor, ...], fixed: tuple[Tensor, ...], numbers: Tensor, *values: Tensor
    ) -> tuple[Tensor, ...]:
        data = unpack(like, values)

        def at(loc: Tensor, sd: Tensor) -> Callable[[Tensor], Tensor]:
            local = None if layers is None else Local(layers, loc, sd)
            return likelihood(problem, data.tensors, data.weights, data.scale, data.rows, local)

        new, value = rule.step(problem, Begun(state, fixed), numbers, at)
        return *new, value

    def all_lanes(*values: Tensor) -> tuple[Tensor, ...]:
        first, second = sizes[0], sizes[0] + sizes[1]
        found: tuple[Tensor, ...] = torch.func.vmap(lane)(
            values[:first], values[first:second], values[second], *values[second + 1 :]
        )
        return found

    return all_lanes


def _begin(
    rule: Rule, problem: LocalProblem, sent: Tensor, personal: Personal | None, size: int | None, seed: int
) -> Begun:
    total = num_rows(problem.program, problem.batch)
    return rule.begin(problem, sent, personal, size or total, seed)


def _visit(rule: Rule, problem: LocalProblem, begun: Begun, sent: Tensor, values: Sequence[Tensor]) -> Visit:
    natural, personal = rule.end(problem, begun, sent)
    return Visit(natural, personal, SolverInfo(len(values), torch.stack(list(values)).mean().item(), True, ""))
