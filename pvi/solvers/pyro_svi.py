"""Stock ``pyro.infer.SVI`` on the local free energy: any Pyro ELBO, any ``pyro.optim`` optimiser, CPU or CUDA.

The client's model runs with its shared priors swapped for the cavity; the guide draws from the family's own member
with the free parameters as one ``pyro.param``. Pyro's parameter store is used in a scope of its own.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyro
import torch
from pyro.infer import SVI as StockSVI
from pyro.infer import Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.optim import ClippedAdam
from torch import Tensor

from pvi.objectives import LocalProblem
from pvi.programs.batch import Batch
from pvi.programs.context import running, seeded
from pvi.programs.guide_program import guide_program
from pvi.programs.handlers import CavityPrior, ScaleObserved
from pvi.programs.program import num_rows
from pvi.solvers.draws import minibatches
from pvi.solvers.protocol import SolverInfo

PARAMETER = "pvi_offset"


def local_model(problem: LocalProblem, cavity: Tensor) -> Callable[..., None]:
    """The client's model with the cavity for a prior; called with a batch and the likelihood's scale n/b.

    Private latents keep the prior that the model gives them, unless the cavity has absorbed it; discrete ones are
    enumerated.
    """
    everything = problem.approximation.coordinates
    replaced = problem.program.shared if problem.absorbed is None else everything
    # The cavity says nothing of latents beyond those replaced: any value inside their supports serves.
    rest = problem.family.interior(cavity)[replaced.size :]

    def log_factor(x: Tensor) -> Tensor:
        return (cavity * problem.family.statistics(torch.cat([x, rest]))).sum(-1)

    factor = CavityPrior(replaced, log_factor)
    program = problem.program.model
    if problem.program.sites.enumerated:
        program = config_enumerate(program, "parallel")

    def model(batch: Batch, scale: float) -> None:
        with factor, ScaleObserved(scale):
            program(*batch.args, **batch.kwargs)

    return model


def local_guide(problem: LocalProblem, start: Tensor) -> Callable[..., None]:
    """The family's own guide; its parameter is an offset from ``start`` in natural step sizes."""
    origin, scale = problem.family.free(start), problem.family.free_scale(start)

    def natural() -> Tensor:
        offset = pyro.param(PARAMETER, torch.zeros_like(origin))
        return problem.family.natural_from_free(origin + scale * offset)

    return guide_program(problem.approximation, natural)


def _default_optimiser() -> Any:
    return ClippedAdam({"lr": 0.05, "lrd": 0.997})


@dataclass(frozen=True)
class PyroSVI:
    """``steps`` steps of ``pyro.infer.SVI``.

    ``optim``: any ``pyro.optim`` optimiser (default: Adam, the rate decaying by 0.3 % a step from 0.05); its state is
    fresh at every visit. ``elbo``: any Pyro ELBO (default ``Trace_ELBO`` with 4 particles). ``batch_size`` rows a
    step (all where ``None``; a model whose plate subsamples draws its own). The result averages the last quarter of
    the iterates.
    """

    steps: int = 1000
    optim: Any = field(default_factory=_default_optimiser)
    elbo: Any = field(default_factory=lambda: Trace_ELBO(num_particles=4))
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"PyroSVI: steps must be at least 1, got {self.steps}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"PyroSVI: batch_size must be at least 1, got {self.batch_size}")
        if getattr(self.elbo, "vectorize_particles", False):
            raise ValueError("PyroSVI: vectorize_particles=True is not supported; particles run one after the other")

    @property
    def name(self) -> str:
        """``PyroSVI``."""
        return "PyroSVI"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`."""
        self._check(problem)
        family, batch = problem.family, problem.batch
        origin, scale = family.free(start), family.free_scale(start)
        total = num_rows(problem.program, batch)
        generator = torch.Generator(device=start.device).manual_seed(seed)
        rows_of = minibatches(total, self.batch_size if problem.program.sites.subsampling is None else None, generator)
        average, losses, kept = torch.zeros_like(origin), [], math.ceil(self.steps / 4)
        with pyro.get_param_store().scope(), seeded(seed, start.device), running(start.dtype):
            svi = StockSVI(
                local_model(problem, cavity), local_guide(problem, start), copy.deepcopy(self.optim), self.elbo
            )
            for taken, rows in zip(range(self.steps), rows_of, strict=False):
                part = batch if rows is None else batch.take(rows)
                losses.append(svi.step(part, 1.0 if rows is None else total / len(rows)))
                if taken >= self.steps - kept:
                    average = average + pyro.param(PARAMETER).detach() / kept
        natural = family.natural_from_free(origin + scale * average).detach()
        free_energy = -sum(losses[-kept:]) / kept
        return natural, SolverInfo(self.steps, free_energy, True, "")

    def _check(self, problem: LocalProblem) -> None:
        """Raises ``ValueError`` where this ELBO or these mini-batches do not fit the client's own latents."""
        sites = problem.program.sites
        discrete = [site.name for site in sites.enumerated]
        if discrete and not isinstance(self.elbo, TraceEnum_ELBO):
            raise ValueError(
                f"PyroSVI, client {problem.client!r}: sites {discrete} are discrete and must be enumerated: pass "
                f"elbo=TraceEnum_ELBO(max_plate_nesting={sites.plate_nesting})"
            )
        by_row = [site.name for site in sites.private if site.by_row]
        if by_row and self.batch_size is not None:
            raise ValueError(
                f"PyroSVI, client {problem.client!r}: sites {by_row} have one private value a row; leave batch_size out"
            )
        if problem.alpha:
            raise ValueError(
                f"PyroSVI minimises the variational divergence, not that of alpha = {problem.alpha:g}: use SVI"
            )
