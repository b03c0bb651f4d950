"""The library: client after client, all clients in one captured step, and in one compiled step."""

import time
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.measure import Contender, synchronize
from benchmarks.problems import Case
from pvi.engine import Engine
from pvi.objectives import LocalProblem
from pvi.problem import build_problem
from pvi.programs.batch import as_batch
from pvi.solvers import SVI

LOOP = "loop"
CAPTURED = "captured"
COMPILED = "compiled"


class Prepared(NamedTuple):
    """The clients' local problems, and the q that all start from: the prior, which is also their first cavity."""

    problems: list[LocalProblem]
    natural: Tensor


def prepare(case: Case, device: torch.device) -> Prepared:
    """What a run knows before its first round."""
    found = build_problem(case.model, case.clients, None, device, None)
    return Prepared(list(found.clients.values()), found.prior.natural)


def alike(case: Case, device: torch.device) -> Prepared:
    """The same without a look at every client's likelihood, for many clients: what is known of the first holds for all.

    SVI asks for nothing else.
    """
    first = prepare(case._replace(clients=case.clients[:1]), device)
    pattern, like = first.problems[0], first.natural
    batches = [as_batch(rows, "client").to(device, like.dtype) for rows in case.clients]
    problems = [pattern._replace(client=f"client {k}", batch=batch) for k, batch in enumerate(batches)]
    return Prepared(problems, first.natural)


def solver(case: Case, steps: int) -> SVI:
    """So many steps whatever happens: no window ends."""
    return SVI(
        steps=steps, learning_rate=0.01, batch_size=case.batch_size, num_particles=case.num_particles, window=10**6
    )


def loop(case: Case, ready: Prepared) -> Contender:
    """One client's solve after the other."""

    def advance(steps: int) -> None:
        for seed, problem in enumerate(ready.problems):
            solver(case, steps).solve(problem, ready.natural, ready.natural, seed)

    return Contender(LOOP, len(ready.problems), advance, 0.0)


def together(case: Case, ready: Prepared, compile: bool) -> Contender:
    """All clients' solves in one graph. Set-up is the first solve: capture, stacking, and compiling where asked for."""
    engine, number = Engine(compile), len(ready.problems)

    def advance(steps: int) -> None:
        same = [ready.natural] * number
        solver(case, steps).solve_many(ready.problems, same, same, list(range(number)), engine)

    synchronize(ready.natural.device)
    began = time.perf_counter()
    advance(3)
    synchronize(ready.natural.device)
    return Contender(COMPILED if compile else CAPTURED, number, advance, time.perf_counter() - began)
