"""Gaussian expectations against closed forms and against a dense sum in NumPy."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from toy_programs import F64

from pvi.packed_quadrature import packed_expectations
from pvi.quadrature import (
    clamped,
    classes,
    expectations,
    expected_curvature,
    expected_value,
    gaussian_quadrature,
    rules,
)

SCALES = [0.0, 1e-9, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.8, 1.0, 1.1, 1.5, 2.0, 4.0, 10.0, 30.0]
LOC = torch.linspace(-6, 6, 25, dtype=F64)


def every(log_prob, scale, width=1.0, loc=LOC):
    return expectations(log_prob, loc, torch.full_like(loc, scale), width)


def logistic(f):
    return torch.nn.functional.logsigmoid(f)


@pytest.mark.parametrize("scale", SCALES)
def test_the_logistic_function_to_ten_digits(scale):
    z = np.linspace(-13, 13, 100_001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    f = LOC.numpy()[:, None] + scale * z
    found = every(logistic, scale)
    np.testing.assert_allclose(found.value, -np.logaddexp(0, -f) @ weights, rtol=0, atol=1e-10 * max(1, scale))
    np.testing.assert_allclose(found.first, expit(-f) @ weights, rtol=0, atol=1e-10)
    # Stein's identity divides by the scale: rounding of 1e-16 becomes 1e-10 at the smallest scale that counts.
    np.testing.assert_allclose(found.second, -(expit(f) * expit(-f)) @ weights, rtol=0, atol=5e-10)


@pytest.mark.parametrize("scale", SCALES)
def test_quadratics_are_exact(scale):
    found = every(lambda f: -2 * (f - 1).square(), scale)
    torch.testing.assert_close(found.value, -2 * ((LOC - 1).square() + scale**2), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.first, -4 * (LOC - 1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.second, torch.full_like(LOC, -4), rtol=5e-9, atol=0)
    torch.testing.assert_close(found.stein, torch.full_like(LOC, -4 * scale**2), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("scale", [scale for scale in SCALES if scale <= 4])
def test_exponentials(scale):
    found = every(lambda f: 3 * f - f.exp(), scale)
    rate = (LOC + scale**2 / 2).exp()
    for got, expected in zip(found[:3], (3 * LOC - rate, 3 - rate, -rate), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_rows_do_not_mix_and_chunks_add_up(scale, monkeypatch):
    scales = scale * torch.linspace(0.01, 1, len(LOC), dtype=F64)
    whole = expectations(logistic, LOC, scales, 1.0)
    for row in (0, 12, 24):
        alone = expectations(logistic, LOC[row : row + 1], scales[row : row + 1], 1.0)
        for one, many in zip(alone, whole, strict=True):
            torch.testing.assert_close(one[0], many[row], rtol=0, atol=1e-9)
    monkeypatch.setattr("pvi.quadrature.MAX_ELEMENTS", 3 * len(LOC))
    for one, many in zip(expectations(logistic, LOC, scales, 1.0), whole, strict=True):
        torch.testing.assert_close(one, many, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(expected_value(logistic, LOC, scales, 1.0), whole.value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(expected_curvature(logistic, LOC, scales, 1.0), whole.second, rtol=0, atol=1e-9)


def test_a_kink_hides_from_autodiff_only():
    found = every(lambda f: -(f - 0.3).abs(), 2.0, 1 / 64)
    density = torch.distributions.Normal(LOC, 2.0).log_prob(torch.tensor(0.3)).exp()
    torch.testing.assert_close(found.second, -2 * density, rtol=1e-3, atol=1e-3)
    assert expected_curvature(lambda f: -(f - 0.3).abs(), LOC, torch.full_like(LOC, 2.0), 1 / 64).abs().max() == 0


def test_few_nodes_for_narrow_rows_and_never_too_many():
    counts = [len(gaussian_quadrature(scale, 1.0, LOC)[0]) for scale in (0.0, 0.1, 0.5, 1.0, 2.0, 8.0, 1e9)]
    assert counts == sorted(counts)
    assert counts[1] <= 6
    assert counts[-1] <= 2049


def test_single_precision():
    loc, scale = LOC.float(), torch.linspace(1e-4, 2, len(LOC))
    found = expectations(logistic, loc, scale, 1.0)
    expected = expectations(logistic, LOC, scale.double(), 1.0)
    for one, many in zip(found[:3], expected[:3], strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), many, rtol=1e-4, atol=1e-4)


def test_rows_packed_by_their_own_nodes_are_what_they_are_together():
    generator = torch.Generator().manual_seed(0)
    loc = 3 * torch.randn(300, generator=generator, dtype=F64)
    scale = clamped(3 * torch.rand(300, generator=generator, dtype=F64).pow(3), 1.0)
    sign = torch.where(torch.rand(300, generator=generator, dtype=F64) < 0.5, 1.0, -1.0)

    def pairs(f, data):
        assert len(f) == len(data[0]) <= 5000
        return logistic(data[0] * f), data[0] * torch.sigmoid(-data[0] * f)

    found = packed_expectations(pairs, 5000, loc, scale, classes(scale, 1.0), [sign])
    together = expectations(lambda f: logistic(sign * f), loc, scale, 1.0)
    for one, other in zip(found, together, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert classes(scale, 1.0).unique().numel() > 6


def test_a_row_takes_the_nodes_that_its_own_scale_asks_for():
    table = rules(F64, LOC.device)
    assert list(table.lengths) == sorted(table.lengths)
    for scale in SCALES:
        kind = int(classes(torch.tensor([scale], dtype=F64), 1.0))
        nodes, _ = gaussian_quadrature(scale, 1.0, LOC)
        assert len(nodes) <= table.lengths[kind] <= 10 + 1.3 * len(nodes)
    assert classes(torch.tensor([float("inf"), float("nan")]), 1.0).tolist() == [len(table.lengths) - 1] * 2
