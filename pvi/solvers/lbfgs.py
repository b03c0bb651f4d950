"""Deterministic local solves of any program under Gaussian families: L-BFGS on the local free energy.

Expectations are exact where the model is generalised linear; elsewhere they are averages over fixed quasi-random draws,
so that the objective is one smooth function (a sample average approximation). The draws come in mirrored pairs with
exactly unit covariance: of log p, terms up to the third order around the mean are averaged exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pvi.families import GaussianFamily
from pvi.families.kinds import is_gaussian
from pvi.objectives import LocalProblem, regulariser
from pvi.programs.linear_predictor import LinearPredictor
from pvi.quadrature import expectations
from pvi.solvers.expected import likelihood_slopes, narrowed
from pvi.solvers.protocol import SolverInfo, check_variational
from pvi.solvers.quasi_newton import init, step

DRAWS_A_PARAMETER = 64
"""Draws that are taken where no number is asked for, a parameter of q."""
MIN_DRAWS, MAX_DRAWS, MAX_NUMBERS = 2048, 32768, 2**25
"""How many at least and at most, and how many normal numbers in all."""
MAX_SOBOL = torch.quasirandom.SobolEngine.MAXDIM


class NotGaussianError(ValueError):
    """A solver that needs a Gaussian family was asked to fit another one."""


def quasi_random(family: GaussianFamily, num_samples: int, like: Tensor) -> Tensor:
    """Standard normal draws ``[num_samples, size]``: scrambled Sobol points, mirrored, with unit covariance exactly.

    Where there are fewer pairs than latents, only the variances are unit exactly.
    """
    engine = torch.quasirandom.SobolEngine(family.size, scramble=True, seed=0)
    uniform = engine.draw(num_samples // 2, dtype=torch.float64).to(like.device)
    half = torch.special.ndtri((1 - 2**-30) * uniform + 2**-31)
    if num_samples > 4 * family.size:
        cholesky = torch.linalg.cholesky(half.mT @ half / len(half))
        half = torch.linalg.solve_triangular(cholesky, half.mT, upper=False).mT
    else:
        half = half / half.square().mean(0).sqrt()
    return torch.cat([half, -half]).to(like.dtype)


@dataclass(frozen=True)
class LBFGS:
    """L-BFGS on the local free energy, for Gaussian families and any likelihood, kinked ones included.

    ``num_samples`` fixed draws stand for the expectations of a model that is not generalised linear, the same at every
    visit; every step evaluates all rows at all of them. q fits the draws a little better than the truth: its free
    energy falls short of the optimum by up to num_free / num_samples nats. ``None``: 64 draws a free parameter, between
    2,048 and 32,768. A solve ends where the optimum is closer than ``tolerance`` (in posterior standard deviations, as
    far as the approximate Hessian tells), where no step rises any more, or after ``max_steps``.

    Raises:
        NotGaussianError: for a family that is not Gaussian.
        ValueError: under a full covariance, for no more than 4 draws a latent; beyond 21,201 latents.
    """

    max_steps: int = 500
    num_samples: int | None = None
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError(f"LBFGS: max_steps must be at least 1, got {self.max_steps}")
        if self.num_samples is not None and (self.num_samples < 2 or self.num_samples % 2):
            raise ValueError(f"LBFGS: num_samples must be even and at least 2, got {self.num_samples}")

    @property
    def name(self) -> str:
        """``LBFGS``."""
        return "LBFGS"

    def solve(self, problem: LocalProblem, cavity: Tensor, start: Tensor, seed: int) -> tuple[Tensor, SolverInfo]:
        """See :class:`~pvi.solvers.protocol.Solver`; deterministic, ``seed`` is not used."""
        check_variational(problem, self.name)
        family, start = problem.family, narrowed(problem, start)
        origin, scale = family.free(start), family.free_scale(start)
        expected = self._expected(problem, start)

        def objective(offset: Tensor) -> tuple[Tensor, Tensor]:
            leaf = offset.clone().requires_grad_()
            if not bool(family.is_proper(family.natural_from_free(origin + scale * offset))):
                return offset.new_tensor(-torch.inf), torch.zeros_like(offset)
            with torch.enable_grad():
                natural = family.natural_from_free(origin + scale * leaf)
                value = expected(natural) + regulariser(family, natural, cavity)
                (gradient,) = torch.autograd.grad(value, leaf)
            return value.detach(), gradient

        tolerance = max(self.tolerance, torch.finfo(start.dtype).eps ** 0.6)
        state, taken, converged, message = init(torch.zeros_like(origin), objective), 0, False, ""
        while not converged and not message:
            state, info = step(state, objective)
            taken += 1
            converged = info.decrement <= tolerance
            if not converged and info.step == 0.0 and not state.pairs:
                message = f"no further ascent (decrement {info.decrement:.1e})"
            elif not converged and taken == self.max_steps:
                message = f"not converged after {taken} steps (decrement {info.decrement:.1e})"
            elif info.step == 0.0:
                # The steepest ascent may still rise where the remembered curvature misleads.
                state = state._replace(pairs=())
        natural = family.natural_from_free(origin + scale * state.offset)
        return natural, SolverInfo(taken, state.value.item(), converged, message)

    def _expected(self, problem: LocalProblem, like: Tensor) -> Callable[[Tensor], Tensor]:
        """E_q[log p(y_m | θ)] as a differentiable function of q's η."""
        family, predictor = problem.approximation.family, problem.predictor
        if not is_gaussian(family):
            raise NotGaussianError(
                f"client {problem.client!r}: LBFGS needs a Gaussian family, but {family} is not; use "
                "pvi.solvers.Conjugate where it is conjugate, NaturalGradient for discrete latents, else SVI"
            )
        if isinstance(predictor, LinearPredictor):
            return lambda natural: _by_quadrature(predictor, family, natural)
        noise = quasi_random(family, self._draws(problem), like)

        def average(natural: Tensor) -> Tensor:
            x = family.from_noise(natural, noise)
            values, slopes = likelihood_slopes(problem, x.detach())
            return (values + (slopes * (x - x.detach())).sum(-1)).mean()

        return average

    def _draws(self, problem: LocalProblem) -> int:
        family = problem.approximation.family
        if family.size > MAX_SOBOL:
            raise ValueError(
                f"client {problem.client!r}: LBFGS has quasi-random draws for {MAX_SOBOL} latents at most, not for "
                f"{family.size}; use pvi.solvers.SVI"
            )
        wanted = min(max(MIN_DRAWS, DRAWS_A_PARAMETER * family.num_free), MAX_DRAWS, MAX_NUMBERS // family.size)
        number = wanted // 2 * 2 if self.num_samples is None else self.num_samples
        for name, member in zip(family.names, family.members, strict=True):
            # More parameters than a mean and a variance a latent: correlations.
            if member.num_free > 2 * member.size and number <= 4 * member.size:
                raise ValueError(
                    f"client {problem.client!r}: LBFGS cannot tell a full covariance over {member.size} latents "
                    f"({name}) from one that fits {number} draws; set num_samples well above {4 * member.size}, or use "
                    "pvi.solvers.SVI"
                )
        return number


def _by_quadrature(predictor: LinearPredictor, family: GaussianFamily, natural: Tensor) -> Tensor:
    """The exact expectation, with its exact first derivatives in the mean and scale of every row's predictor."""
    loc = predictor.design @ family.location(natural) + predictor.offset
    scale = family.predictor_variance(natural, predictor.design).sqrt()
    found = expectations(predictor.log_prob, loc.detach(), scale.detach(), predictor.width)
    slopes = found.first * (loc - loc.detach()) + found.second * scale.detach() * (scale - scale.detach())
    return (found.value + slopes).sum()
