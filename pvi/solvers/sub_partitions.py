"""A client's rows in parts, each with a factor of its own: PVI within a client (mini-batches the paper's first way)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.objectives import LocalProblem, local_free_energy
from pvi.programs.linear_predictor import LinearPredictor
from pvi.programs.program import log_likelihood
from pvi.programs.recover import recover_factor
from pvi.programs.row_likelihood import close, row_log_prob, stacked
from pvi.programs.sites import discover
from pvi.solvers.fixed_point import length
from pvi.solvers.protocol import Solver, SolverInfo, check_variational

TOLERANCE = 1e-7
"""Posterior standard deviations: a pass that moves q by less is the last one."""


def split_problem(problem: LocalProblem, parts: int, seed: int, x: Tensor) -> list[LocalProblem]:
    """The local problems of ``parts`` disjoint sets of rows, drawn at random, the same ones for the same seed.

    ``x [2, size]`` are points where the parts' likelihoods must add up to the client's.

    Raises ``ValueError`` where they do not, where a latent belongs to a row, and where a plate draws its own rows.
    """
    sites = problem.program.sites
    by_row = [site.name for site in sites.private if site.by_row]
    if sites.subsampling is not None:
        raise ValueError(
            f"client {problem.client!r}: SubPartitions cannot split rows that plate {sites.subsampling[0]!r} "
            "subsamples; use pvi.solvers.SVI"
        )
    if by_row:
        raise ValueError(
            f"client {problem.client!r}: SubPartitions cannot split rows with latents of their own ({by_row}); use "
            "pvi.solvers.SVI"
        )
    rows = problem.batch.num_rows
    generator = torch.Generator(device=x.device).manual_seed(seed)
    order = torch.randperm(rows, generator=generator, device=x.device)
    found = [_part(problem, part, x) for part in order.tensor_split(min(parts, rows))]
    for point in x:
        whole = log_likelihood(problem.program, point, problem.batch)
        total = torch.stack([log_likelihood(part.program, point, part.batch) for part in found]).sum()
        # Where the likelihood overflows there is nothing to compare.
        if bool(torch.isfinite(whole)) and not close(total, whole, 1e4 * torch.finfo(x.dtype).eps):
            raise ValueError(
                f"client {problem.client!r}: SubPartitions needs rows that are independent given the latents, but the "
                f"log likelihoods of its parts add up to {total.item():.6g}, not to {whole.item():.6g}: rows share "
                "something, or a latent of the client's own is counted with every part; use the inner solver itself"
            )
    return found


def _part(problem: LocalProblem, rows: Tensor, like: Tensor) -> LocalProblem:
    batch = problem.batch.take(rows)
    program = problem.program._replace(sites=discover(problem.program.model, batch, problem.client))
    predictor, conjugate = problem.predictor, problem.conjugate
    if isinstance(predictor, LinearPredictor):
        offset, zero = predictor.offset[rows], like.new_zeros(like.shape[1])

        def log_prob(f: Tensor) -> Tensor:
            return row_log_prob(program, batch, zero, f)

        generator = torch.Generator(device=like.device).manual_seed(0)
        predictor = predictor._replace(
            design=predictor.design[rows], offset=offset, log_prob=stacked(log_prob, offset, generator)
        )
    if conjugate is not None:
        conjugate = recover_factor(problem.family, lambda x: log_likelihood(program, x, batch), like[0])
    return problem._replace(program=program, batch=batch, predictor=predictor, conjugate=conjugate)


@dataclass(frozen=True)
class SubPartitions:
    """The client's rows in ``parts`` fixed parts, refined one after the other by ``solver``, ``passes`` times at most.

    Every part has a factor; at a visit these start as equal shares of what stands for the client now. ``seed`` fixes
    which rows form a part: the same ones at every visit. The limit is that of the solver on all rows at once; what is
    gained are small problems for solvers whose steps cost a pass over their rows.

    Raises ``ValueError`` for models whose rows cannot be split, see :func:`split_problem`.
    """

    solver: Solver
    parts: int = 4
    passes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for label in ("parts", "passes"):
            if getattr(self, label) < 1:
                raise ValueError(f"SubPartitions: {label} must be at least 1, got {getattr(self, label)}")

    @property
    def name(self) -> str:
        """``SubPartitions(`` the inner solver's name ``)``."""
        return f"SubPartitions({self.solver.name})"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; ``steps`` counts inner ones."""
        check_variational(problem, self.name)
        drawn = problem.family.sample(start, (), torch.Generator(device=start.device).manual_seed(0))
        points = torch.stack([problem.family.interior(start), drawn])
        problems = split_problem(problem, self.parts, self.seed, points)
        factors = [(start - cavity) / len(problems)] * len(problems)
        natural, steps, moved = start, 0, float("inf")
        for number in range(self.passes):
            before = natural
            for k, part in enumerate(problems):
                rest = natural - factors[k]
                new, info = self.solver.solve(part, rest, natural, seed + number * len(problems) + k)
                steps += info.steps
                if not bool(problem.family.is_proper(new)):
                    message = f"part {k + 1} of {len(problems)} ended improper or not finite; {info.message}"
                    return self._finish(problem, natural, cavity, steps, message)
                natural, factors[k] = new, new - rest
            moved = length(problem, natural, natural - before)
            if moved <= TOLERANCE:
                return self._finish(problem, natural, cavity, steps, "")
        message = f"the last of {self.passes} passes moved q by {moved:.1e} posterior standard deviations"
        return self._finish(problem, natural, cavity, steps, message)

    def _finish(
        self, problem: LocalProblem, natural: Tensor, cavity: Tensor, steps: int, message: str
    ) -> tuple[Tensor, SolverInfo]:
        free_energy = local_free_energy(problem, natural, cavity).value
        return natural, SolverInfo(steps, free_energy, not message, message)
