"""Theorem 2.1: maximising the local free energy is projecting the tilted distribution, F_m(q) = log Z - KL(q, tilted).

The tilted distribution is exp(η_cav·T(θ)) p(y_m | θ) / Z. Here its density comes from the model's own formula in numpy,
and Z and the divergence from trapezoid sums over one or two latents; nothing of the library's expectations is used.
"""

from typing import NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import special
from toy_programs import problem_of, unknown_noise

from pvi.models import linear_regression, logistic_regression, poisson_regression
from pvi.objectives import LocalProblem, local_free_energy
from pvi.solvers import Newton

LINE = np.linspace(-12, 12, 481)


def through_origin(x, y):
    """Logistic regression with one latent."""
    slope = pyro.sample("slope", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x[:, 0] * slope), obs=y)


def counts_through_origin(x, y):
    """Poisson regression with one latent."""
    slope = pyro.sample("slope", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson((x[:, 0] * slope).exp()), obs=y)


def bernoulli(f, y):
    return -np.logaddexp(0, np.where(y > 0.5, -f, f))


def poisson(f, y):
    return y * f - np.exp(f) - special.gammaln(y + 1)


def normal(f, y):
    return -0.5 * (y - f) ** 2 - 0.5 * np.log(2 * np.pi)


class Case(NamedTuple):
    """A model, its formula for log p(y_i | f_i), and the cavities to try: precision matrix [d, d] and h [d]."""

    model: object
    log_density: object
    rows: np.ndarray
    y: np.ndarray
    guide: object
    cavity: tuple[list, list]

    @property
    def design(self):
        """The rows, with the intercept where the model has one."""
        size = len(self.cavity[1])
        return self.rows if self.rows.shape[1] == size else np.hstack([self.rows, np.ones((len(self.rows), 1))])


ROWS = np.array([[-1.3], [0.4], [0.9], [-0.2], [2.1], [-0.7]])
BITS = np.array([0.0, 1, 0, 1, 1, 1])  # of both kinds on both sides, so that a flat cavity gives a proper tilted law
COUNTS = np.array([2.0, 0, 3, 1, 4, 0])
REALS = np.array([-0.3, 1.1, 0.2, 0.4, 2.0, -1.5])
CROSS = np.array([[1.0], [-1.0], [1.5], [-1.2], [0.8], [-0.9]])
PROPER = ([[1.3, 0.0], [0.0, 0.8]], [0.4, -0.7])
CORRELATED = ([[1.3, 0.5], [0.5, 0.8]], [0.4, -0.7])
CASES = {
    "logistic, one latent": Case(through_origin, bernoulli, ROWS, BITS, None, ([[0.7]], [0.5])),
    "logistic, flat cavity": Case(through_origin, bernoulli, ROWS, BITS, None, ([[0.0]], [0.2])),
    "Poisson, one latent": Case(counts_through_origin, poisson, ROWS, COUNTS, None, ([[0.7]], [0.5])),
    # exp on both sides: the likelihood falls faster than any Gaussian, whatever the cavity.
    "Poisson, improper cavity": Case(counts_through_origin, poisson, CROSS, COUNTS, None, ([[-0.8]], [0.3])),
    "logistic, mean field": Case(logistic_regression.model, bernoulli, ROWS, BITS, None, PROPER),
    "logistic, full": Case(logistic_regression.model, bernoulli, ROWS, BITS, "full", CORRELATED),
    "logistic, full, improper cavity": Case(
        logistic_regression.model, bernoulli, ROWS, BITS, "full", ([[0.0, 0.0], [0.0, 0.5]], [0.1, -0.2])
    ),
    "Poisson, mean field": Case(poisson_regression.model, poisson, ROWS, COUNTS, None, PROPER),
    "Poisson, full": Case(poisson_regression.model, poisson, ROWS, COUNTS, "full", CORRELATED),
    "linear, full": Case(linear_regression.model, normal, ROWS, REALS, "full", CORRELATED),
    "linear, full, improper cavity": Case(
        linear_regression.model, normal, ROWS, REALS, "full", ([[-0.9, 0.2], [0.2, -1.1]], [0.4, -0.7])
    ),
    "linear, mean field": Case(linear_regression.model, normal, ROWS, REALS, None, PROPER),
}


def parameters(family, precision, h):
    """η of exp(h·θ - ½ θᵀ Λ θ), from its definition; improper ones too."""
    lower = np.tril_indices(len(h))
    if family.num_natural > 2 * len(h):
        pieces = [h, -(precision - 0.5 * np.diag(np.diag(precision)))[lower]]
    else:  # by site: (h, -½ λ)
        pieces = [part for own, value in zip(np.diag(precision), h, strict=True) for part in ([value], [-0.5 * own])]
    return torch.as_tensor(np.concatenate(pieces))


def moments(family, natural):
    """Mean [d] and covariance [d, d] of a proper η, inverting :func:`parameters`."""
    size = family.size
    eta = natural.numpy()
    if family.num_natural > 2 * size:
        h, precision = eta[:size], np.zeros((size, size))
        precision[np.tril_indices(size)] = -eta[size:]
        precision = precision + precision.T
    else:
        h, precision = eta[::2], np.diag(-2 * eta[1::2])
    covariance = np.linalg.inv(precision)
    return covariance @ h, covariance


class Tilted(NamedTuple):
    """The unnormalised log density, on the grid that fits a given q too, and its normaliser."""

    case: Case

    def log_unnormalised(self, theta):
        """log of cavity times likelihood at θ ``[n, d]``."""
        precision, h = (np.array(part) for part in self.case.cavity)
        likelihood = self.case.log_density(theta @ self.case.design.T, self.case.y).sum(1)
        return theta @ h - 0.5 * ((theta @ precision) * theta).sum(1) + likelihood

    def log_normaliser(self, mean, covariance):
        """log Z on a grid of this centre and width, after a second look with the moments that the first one found."""
        for _ in range(2):
            theta, volume = grid(mean, covariance)
            logs = self.log_unnormalised(theta)
            weights = np.exp(logs - logs.max())
            total, weights = weights.sum(), weights / weights.sum()
            mean = weights @ theta
            covariance = ((theta - mean).T * weights) @ (theta - mean)
        return logs.max() + np.log(total * volume)

    def divergence(self, mean, covariance, log_normaliser):
        """KL(q, tilted) in nats for the Gaussian q."""
        theta, volume = grid(mean, covariance)
        shift = theta - mean
        log_q = -0.5 * ((shift @ np.linalg.inv(covariance)) * shift).sum(1)
        log_q -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        return volume * np.exp(log_q) @ (log_q - self.log_unnormalised(theta) + log_normaliser)


def grid(mean, covariance):
    """Points ``[n, d]`` over twelve standard deviations each way, and the volume that each stands for."""
    size = len(mean)
    line = LINE if size == 1 else LINE[::3]
    nodes = np.stack(np.meshgrid(*[line] * size, indexing="ij"), -1).reshape(-1, size)
    root = np.linalg.cholesky(covariance)
    return mean + nodes @ root.T, np.linalg.det(root) * (line[1] - line[0]) ** size


def set_up(name) -> tuple[Case, LocalProblem, torch.Tensor, Tilted]:
    case = CASES[name]
    problem, _ = problem_of(case.model, torch.as_tensor(case.rows), torch.as_tensor(case.y), guide=case.guide)
    precision, h = (np.array(part, dtype=float) for part in case.cavity)
    return case, problem, parameters(problem.family, precision, h), Tilted(case)


@pytest.mark.parametrize("name", CASES)
def test_the_local_free_energy_is_the_normaliser_less_the_divergence(name):
    case, problem, cavity, tilted = set_up(name)
    proper = np.linalg.eigvalsh(np.array(case.cavity[0]))[0] > 0
    assert bool(problem.family.is_proper(cavity)) == proper == ("improper" not in name and "flat" not in name)
    start = problem.family.natural_from_free(cavity.new_zeros(problem.family.num_free))
    best, _ = Newton(tolerance=1e-9).solve(problem, cavity, start, 0)
    log_normaliser = tilted.log_normaliser(*moments(problem.family, best))
    generator = torch.Generator().manual_seed(3)
    for _ in range(6):
        free = torch.randn(problem.family.num_free, generator=generator, dtype=torch.float64)
        q = problem.family.natural_from_free(0.4 * free)
        divergence = tilted.divergence(*moments(problem.family, q), log_normaliser)
        found = local_free_energy(problem, q, cavity)
        assert found.standard_error == 0
        assert found.value == pytest.approx(log_normaliser - divergence, abs=1e-8)
        assert found.value < log_normaliser


@pytest.mark.parametrize("name", CASES)
def test_its_maximiser_is_the_projection(name):
    """KL(q, tilted) has slope zero at Newton's q in every direction of the family, and rises on both sides."""
    _, problem, cavity, tilted = set_up(name)
    family = problem.family
    start = family.natural_from_free(cavity.new_zeros(family.num_free))
    best, info = Newton(tolerance=1e-9).solve(problem, cavity, start, 0)
    assert info.converged
    log_normaliser = tilted.log_normaliser(*moments(family, best))
    free, scale, step = family.free(best), family.free_scale(best), 2e-3

    def divergence(shift):
        return tilted.divergence(*moments(family, family.natural_from_free(free + scale * shift)), log_normaliser)

    lowest = divergence(torch.zeros_like(free))
    assert info.free_energy == pytest.approx(log_normaliser - lowest, abs=1e-8)
    generator = torch.Generator().manual_seed(4)
    directions = [*torch.eye(len(free), dtype=free.dtype), torch.randn(len(free), generator=generator).to(free)]
    for direction in directions:
        up, down, far_up, far_down = (divergence(k * step * direction) for k in (1, -1, 2, -2))
        # Five points: fifth derivatives times step⁴ are what is left.
        assert abs(8 * (up - down) - (far_up - far_down)) / (12 * step) < 1e-6
        assert up + down - 2 * lowest > 0.1 * step**2
    for _ in range(10):
        far = torch.randn(len(free), generator=generator).to(free)
        assert divergence(0.5 * far) > lowest


def test_a_tilted_law_in_the_family_is_found_exactly():
    """Linear regression, full covariance: the divergence is zero and F_m is log Z."""
    _, problem, cavity, tilted = set_up("linear, full")
    start = problem.family.natural_from_free(cavity.new_zeros(problem.family.num_free))
    best, info = Newton().solve(problem, cavity, start, 0)
    log_normaliser = tilted.log_normaliser(*moments(problem.family, best))
    assert info.free_energy == pytest.approx(log_normaliser, abs=1e-8)
    assert tilted.divergence(*moments(problem.family, best), log_normaliser) == pytest.approx(0, abs=1e-8)


class NoisyTilted(Tilted):
    """A location and, on the log scale, a noise: y_i ~ Normal(loc, exp(u)), no generalised linear model."""

    def log_unnormalised(self, theta):
        precision, h = (np.array(part) for part in self.case.cavity)
        loc, u = theta[:, :1], theta[:, 1:]
        likelihood = -0.5 * ((self.case.y - loc) / np.exp(u)) ** 2 - u - 0.5 * np.log(2 * np.pi)
        return theta @ h - 0.5 * ((theta @ precision) * theta).sum(1) + likelihood.sum(1)


def test_estimated_from_draws_it_is_the_same_within_its_error():
    tilted = NoisyTilted(Case(unknown_noise, None, ROWS, REALS, None, PROPER))
    problem, _ = problem_of(unknown_noise, torch.as_tensor(REALS))
    cavity = parameters(problem.family, *(np.array(part) for part in PROPER))
    log_normaliser = tilted.log_normaliser(np.zeros(2), 0.2 * np.eye(2))
    q = parameters(problem.family, np.diag([4.0, 9.0]), np.array([1.2, 0.9]))
    expected = log_normaliser - tilted.divergence(*moments(problem.family, q), log_normaliser)
    errors = []
    for seed in range(10):
        found = local_free_energy(problem, q, cavity, seed=seed)
        assert 0 < found.standard_error < 1
        errors.append((found.value - expected) / found.standard_error)
    assert max(map(abs, errors)) < 5
    assert abs(np.mean(errors)) < 5 / np.sqrt(len(errors))
