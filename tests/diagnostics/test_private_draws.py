"""Draws of private latents belong to the shared draws beside them: against the joint Gaussian, and in distribution."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_private import by_row, mixed
from torch.distributions import MultivariateNormal

from pvi.diagnostics.private_draws import conditional, draw

N = 4000


@pytest.fixture(scope="module")
def full():
    return mixed("full")


@pytest.mark.parametrize("guide", ["full", None])
def test_a_client_s_draws_have_the_joint_moments(guide):
    result = mixed(guide)
    drawn = draw(result, N, torch.Generator().manual_seed(1))
    for client, local in result.local.items():
        values = drawn.of(client)
        stacked = local.coordinates.unconstrain(values).numpy()
        precision = local.family.precision_matrix(local.natural)
        covariance = torch.linalg.inv(precision).numpy()
        scale = np.sqrt(covariance.diagonal())
        mean = local.family.location(local.natural).numpy()
        assert (np.abs(stacked.mean(0) - mean) < 5 * scale / np.sqrt(N)).all()
        error = np.outer(scale, scale) * np.sqrt(2 / N)
        assert (np.abs(np.cov(stacked.T) - covariance) < 5 * error).all()
    assert (abs(covariance[-1, :-1]).max() > 0.01) == (guide == "full")


def test_all_clients_share_one_draw_of_theta(full):
    drawn = draw(full, 50, torch.Generator().manual_seed(2))
    expected = full.posterior.sample(50, torch.Generator().manual_seed(2))
    assert all(torch.equal(drawn.shared[name], value) for name, value in expected.items())
    for client in full.local:
        assert all(drawn.of(client)[name] is drawn.shared[name] for name in expected)


def test_the_density_is_that_of_theta_and_of_each_client_given_theta(full):
    drawn = draw(full, 20, torch.Generator().manual_seed(3))
    expected = full.posterior.log_prob(drawn.shared)
    for client, local in full.local.items():
        loc, covariance = local.family.standard(local.natural).values()
        whole, part = MultivariateNormal(loc, covariance), MultivariateNormal(loc[:-1], covariance[:-1, :-1])
        x = local.coordinates.unconstrain(drawn.of(client))
        expected = expected + whole.log_prob(x) - part.log_prob(x[:, :-1])
    torch.testing.assert_close(drawn.log_q, expected)


def test_latents_by_row_can_be_left_out():
    result = by_row()
    whole = draw(result, 10, torch.Generator().manual_seed(0))
    assert whole.private["b"]["effect"].shape == (10, 8)
    bare = draw(result, 10, torch.Generator().manual_seed(0), leave_out=result.by_row)
    assert bare.private == {}
    assert torch.equal(bare.log_q, result.posterior.log_prob(bare.shared))
    local = result.local["b"]
    assert conditional(local, result.posterior.coordinates, whole.shared, ("effect",)) is None


def test_a_result_without_private_latents(full):
    drawn = draw(replace(full, local={}), 5, torch.Generator().manual_seed(0))
    assert drawn.private == {}
    assert set(drawn.of("north")) == {"weights", "bias"}
