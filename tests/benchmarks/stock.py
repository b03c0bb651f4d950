"""Stock Pyro: one ``pyro.infer.SVI`` with an AutoNormal guide a client, one client after the other."""

import time

import pyro
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

from benchmarks.measure import Contender
from benchmarks.problems import Case

NAME = "stock Pyro"


def stock(case: Case) -> Contender:
    """Every client's solve goes on where it stopped. Validation is off, particles are vectorised: Pyro at its best."""
    pyro.settings.set(module_local_params=True)
    pyro.enable_validation(False)
    began = time.perf_counter()
    solves = []
    for x, y in case.clients:
        guide = AutoNormal(case.stock)
        several = case.num_particles > 1
        loss = Trace_ELBO(num_particles=case.num_particles, vectorize_particles=several, max_plate_nesting=1)
        solve = SVI(case.stock, guide, pyro.optim.Adam({"lr": 0.01}), loss)
        solve.step(x, y, case.batch_size)
        solves.append(solve)
    if case.clients[0][0].is_cuda:
        torch.cuda.synchronize()
    setup = time.perf_counter() - began

    def advance(steps: int) -> None:
        for solve, (x, y) in zip(solves, case.clients, strict=True):
            for _ in range(steps):
                solve.step(x, y, case.batch_size)

    return Contender(NAME, len(case.clients), advance, setup)
