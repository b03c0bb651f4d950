"""The closed-form solver against closed forms; likelihoods outside the family are refused, improper results said."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from toy_programs import F64, normal, problem_of, regression, subsampled

from pvi.objectives import local_free_energy
from pvi.solvers import Conjugate, NotConjugateError

X = normal(25, 3, seed=1) @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]], dtype=F64)
Y = X @ torch.tensor([1.0, -0.5, 0.2], dtype=F64) + 0.3 + 0.7 * normal(25, seed=2)


def log_evidence():
    """log N(y; 0.5, X 4 Xᵀ + 1 + 0.49 I): regression's prior and noise."""
    covariance = 4 * X @ X.mT + torch.ones(25, 25, dtype=F64) + 0.7**2 * torch.eye(25, dtype=F64)
    return torch.distributions.MultivariateNormal(torch.full((25,), 0.5, dtype=F64), covariance).log_prob(Y).item()


def test_a_full_gaussian_is_exact_and_so_is_the_evidence():
    problem, prior = problem_of(regression, X, Y, guide="full")
    natural, info = Conjugate().solve(problem, prior.natural, prior.natural, 0)
    design = torch.cat([X, torch.ones(25, 1, dtype=F64)], 1)
    precision = torch.diag(torch.tensor([0.25, 0.25, 0.25, 1.0], dtype=F64)) + design.mT @ design / 0.7**2
    loc = torch.linalg.solve(precision, design.mT @ Y / 0.7**2 + torch.tensor([0.0, 0.0, 0.0, 0.5], dtype=F64))
    standard = problem.family.members[0].standard(natural)
    assert torch.allclose(standard["loc"], loc, atol=1e-10)
    assert torch.allclose(standard["covariance_matrix"], torch.linalg.inv(precision), atol=1e-10)
    assert info.converged
    assert info.steps == 1
    # F_m counts the cavity as exp(η·T): its normaliser comes on top.
    normaliser = problem.family.log_partition(prior.natural).item()
    assert info.free_energy - normaliser == pytest.approx(log_evidence(), abs=1e-9)
    assert info.free_energy == pytest.approx(local_free_energy(problem, natural, prior.natural).value, abs=1e-9)


def test_mean_field_with_correlated_columns_is_refused_in_words():
    problem, prior = problem_of(regression, X, Y)
    with pytest.raises(
        NotConjugateError, match="client 'client 0': Conjugate needs a likelihood in the family"
    ) as said:
        Conjugate().solve(problem, prior.natural, prior.natural, 0)
    assert "pvi.solvers.Newton" in str(said.value)
    assert "guide='full'" in str(said.value)


def test_a_subsampling_plate_counts_all_rows():
    y = 0.5 + normal(20, seed=8)
    problem, prior = problem_of(lambda y: subsampled(y, 6), y)
    natural, _ = Conjugate().solve(problem, prior.natural, prior.natural, 0)
    precision = 1 + 1 / 4 + 20 / 1.5**2
    standard = problem.family.members[0].standard(natural)
    assert standard["scale"].item() == pytest.approx(precision**-0.5, abs=1e-10)
    assert standard["loc"].item() == pytest.approx(((0.3 / 4 + y.sum() / 1.5**2) / precision).item(), abs=1e-10)


def test_one_discrete_latent_is_exact_by_bayes_rule():
    y = torch.tensor([0.9, 1.4, 0.2, 1.1], dtype=F64)
    centres, probs = torch.tensor([-1.0, 0.5, 1.0], dtype=F64), torch.tensor([0.5, 0.2, 0.3], dtype=F64)

    def model(y):
        k = pyro.sample("k", dist.Categorical(probs))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(centres[k], 1.0), obs=y)

    problem, prior = problem_of(model, y)
    natural, info = Conjugate().solve(problem, prior.natural, prior.natural, 0)
    log_joint = probs.log() + torch.distributions.Normal(centres[:, None], 1.0).log_prob(y).sum(-1)
    found = problem.family.members[0].standard(natural)["probs"].flatten()
    assert torch.allclose(found, torch.softmax(log_joint, 0), atol=1e-12)
    normaliser = problem.family.log_partition(prior.natural).item()
    assert info.free_energy - normaliser == pytest.approx(torch.logsumexp(log_joint, 0).item(), abs=1e-10)


def test_an_improper_result_is_returned_and_said():
    problem, prior = problem_of(regression, X[:2], Y[:2], guide="full")
    natural, info = Conjugate().solve(problem, -2 * prior.natural, prior.natural, 0)
    assert not bool(problem.family.is_proper(natural))
    assert not info.converged
    assert "improper" in info.message
    assert info.free_energy == math.inf


def test_it_is_exact_for_every_alpha():
    """The tilted distribution lies in the family, and is at distance zero from itself by any divergence."""
    problem, prior = problem_of(regression, X, Y, guide="full")
    exact, _ = Conjugate().solve(problem, prior.natural, prior.natural, 0)
    found, _ = Conjugate().solve(problem._replace(alpha=0.5), prior.natural, prior.natural, 0)
    assert torch.equal(found, exact)
