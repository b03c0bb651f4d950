"""Type-II maximum likelihood against another formula of the evidence, grids, and the ELBO of global VI."""

import numpy as np
import pytest
from scipy import optimize

from oracles import global_vi, linear_regression
from oracles.evidence import best_scales, log_evidence, type_two


def regression(rows=40, size=6, seed=0):
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(rows, size)) @ (np.eye(size) + 0.3)
    return design, design @ rng.normal(scale=0.6, size=size) + 0.9 * rng.normal(size=rows)


@pytest.mark.parametrize("rows", [40, 4])
def test_the_evidence_is_that_of_weight_space(rows):
    """With four rows of six columns too, where the design has no null directions of y."""
    design, y = regression(rows)
    for noise, prior, mean in ((0.8, 0.5, 0.0), (2.0, 3.0, 0.4)):
        value, gradient = log_evidence(design, y, noise, prior, mean)
        assert value == pytest.approx(linear_regression(design, y, noise, mean, prior**-2)[2], abs=1e-9)
        x = np.log([noise, prior])
        numeric = optimize.approx_fprime(x, lambda x, mean=mean: log_evidence(design, y, *np.exp(x), mean)[0], 1e-7)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("given", [{}, {"noise_scale": 0.7}, {"prior_scale": 2.0}])
def test_the_maximum_is_on_the_grid(given):
    design, y = regression()
    best = type_two(design, y, prior_mean=0.1, **given)
    assert best.gradient_norm < 1e-6
    for name, value in given.items():
        assert getattr(best, name) == pytest.approx(value)
    assert best.objective == pytest.approx(
        linear_regression(design, y, best.noise_scale, 0.1, best.prior_scale**-2)[2], abs=1e-9
    )
    axes = [[given[k]] if k in given else np.geomspace(0.05, 20, 120) for k in ("noise_scale", "prior_scale")]
    values = np.array([[log_evidence(design, y, n, p, 0.1)[0] for p in axes[1]] for n in axes[0]])
    assert values.max() < best.objective + 1e-9
    place = np.unravel_index(values.argmax(), values.shape)
    for axis, index, scale in zip(axes, place, (best.noise_scale, best.prior_scale), strict=True):
        assert abs(np.log(axis[index] / scale)) <= np.log(20 / 0.05) / 119


def test_no_maximum_is_an_error():
    """Without an effect in the data, the prior's best scale is zero."""
    design, _ = regression()
    y = np.random.default_rng(1).normal(size=40)
    y -= design @ np.linalg.lstsq(design, y, rcond=None)[0]
    with pytest.raises(RuntimeError, match="no maximum at finite scales"):
        type_two(design, y)


def test_the_best_bound_of_full_covariance_is_the_best_evidence():
    design, y = regression()
    exact = type_two(design, y)
    found = best_scales(design, y, "gaussian", "full", noise_scale=None)
    assert found.objective == pytest.approx(exact.objective, abs=1e-8)
    assert found.noise_scale == pytest.approx(exact.noise_scale, rel=1e-5)
    assert found.prior_scale == pytest.approx(exact.prior_scale, rel=1e-4)
    mean_field = best_scales(design, y, "gaussian", "diagonal", noise_scale=None)
    assert mean_field.objective < exact.objective
    assert abs(np.log(mean_field.prior_scale / exact.prior_scale)) > 1e-3


def test_the_prior_scale_of_mean_field_solves_its_stationarity():
    """dF/dε = 0 at fixed q: the prior's variance is the mean of E_q θ²; the noise's that of E_q (y - xθ)²."""
    design, y = regression()
    found = best_scales(design, y, "gaussian", "diagonal", noise_scale=None)
    q = global_vi(design, y, "gaussian", 0.0, found.prior_scale**-2, "diagonal", found.noise_scale)
    assert found.prior_scale**2 == pytest.approx((q.mean**2 + q.covariance).mean(), rel=1e-5)
    errors = (y - design @ q.mean) ** 2 + design**2 @ q.covariance
    assert found.noise_scale**2 == pytest.approx(errors.mean(), rel=1e-5)
    labels = (y > 0).astype(float)
    found = best_scales(design, labels)
    q = global_vi(design, labels, "bernoulli", 0.0, found.prior_scale**-2)
    assert found.prior_scale**2 == pytest.approx((q.mean**2 + q.covariance).mean(), rel=1e-5)
