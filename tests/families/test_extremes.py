"""Very small and very large shapes and concentrations; draws under torch's function transforms."""

import warnings

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from pvi.families import Beta, Categorical, Dirichlet, Gamma
from pvi.families.gamma_draws import _Draw, log_gamma_draws
from pvi.families.polygamma import inverse_digamma, reciprocal_remainder, trigamma, trigamma_remainder

F64 = torch.float64
SIZES = torch.logspace(-3, 5, 33, dtype=F64)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_remainders_of_trigamma_join_at_the_change_of_formula():
    x = torch.logspace(-3, 4, 500, dtype=F64)
    # In double precision the plain formulas still have these digits at x = 10^4.
    torch.testing.assert_close(trigamma_remainder(x), x * trigamma(x) - 1, rtol=1e-7, atol=0)
    torch.testing.assert_close(reciprocal_remainder(x), 1 / trigamma(x) - x + 0.5, rtol=0, atol=1e-8)
    around = torch.tensor([32 - 1e-9, 32.0], dtype=F64)
    for function in (trigamma_remainder, reciprocal_remainder):
        low, high = function(around)
        assert abs(low / high - 1) < 1e-9
    # The series stays exact where the plain formula has no digit left.
    torch.testing.assert_close(trigamma_remainder(torch.tensor(1e12, dtype=F64)).item(), 5e-13, rtol=1e-11, atol=0)
    torch.testing.assert_close(
        reciprocal_remainder(torch.tensor(1e6, dtype=F64)).item(), 1 / 12e6 + 1 / 24e12, rtol=0, atol=1e-16
    )
    for function in (trigamma_remainder, reciprocal_remainder):
        slope = torch.func.vmap(torch.func.grad(function))(x)
        assert bool(torch.isfinite(slope).all())


def test_inverse_digamma():
    x = torch.logspace(-8, 8, 200, dtype=F64)
    torch.testing.assert_close(inverse_digamma(torch.digamma(x)), x, rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape", SIZES.tolist())
def test_gamma_of_any_shape(shape):
    family = Gamma(1)
    natural = family.natural_from_standard(concentration=SIZES.new_tensor([shape]), rate=SIZES.new_tensor([3.0]))
    back = family.standard(family.natural_from_mean(family.mean_parameters(natural)))
    for name, value in family.standard(natural).items():
        torch.testing.assert_close(back[name], value, rtol=1e-7, atol=0)
    gradient = SIZES.new_tensor([0.3, -1.2])
    # F⁻¹ by the plain formula; its determinant loses about ten digits at the largest shape.
    fisher = SIZES.new_tensor([[trigamma(natural[:1] + 1).item(), 1 / 3], [1 / 3, shape / 9]])
    expected = torch.linalg.solve(fisher, gradient)
    torch.testing.assert_close(family.natural_gradient(natural, gradient), expected, rtol=1e-9, atol=0)
    single = family.natural_gradient(natural.float(), gradient.float())
    torch.testing.assert_close(single.double(), expected, rtol=1e-3 if shape < 0.1 else 1e-5, atol=0)


@pytest.mark.parametrize("concentration", SIZES.tolist())
def test_dirichlet_of_any_concentration(concentration):
    family = Dirichlet(3)
    alpha = concentration * SIZES.new_tensor([[1.0, 0.2, 0.7]])
    natural = family.natural_from_standard(concentration=alpha)
    torch.testing.assert_close(
        family.natural_from_mean(family.mean_parameters(natural)) + 1, alpha[0], rtol=1e-7, atol=0
    )
    gradient = SIZES.new_tensor([0.3, -1.2, 0.4])
    fisher = torch.diag(trigamma(alpha[0])) - trigamma(alpha.sum())
    expected = torch.linalg.solve(fisher, gradient)
    torch.testing.assert_close(family.natural_gradient(natural, gradient), expected, rtol=1e-8, atol=0)
    slope = torch.func.jacrev(family.natural_from_mean)(family.mean_parameters(natural))
    torch.testing.assert_close(slope, torch.linalg.inv(fisher), rtol=1e-6, atol=1e-6 * slope.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [1e-4, 1e-2, 1.0, 1e4])
def test_draws_stay_inside_their_supports(shape, dtype):
    alpha = torch.full((2,), shape, dtype=dtype)
    assert bool(torch.isfinite(log_gamma_draws(alpha, (1_000,), generator())).all())
    for family in (Gamma(1), Beta(1), Dirichlet(2)):
        natural = (alpha - 1)[: family.num_natural]
        if isinstance(family, Gamma):
            natural = torch.stack([alpha[0] - 1, -alpha[0]])
        x = family.sample(natural, (1_000,), generator())
        assert bool((x > 0).all())
        assert isinstance(family, Gamma) or bool((x < 1).all())
        assert bool(torch.isfinite(family.statistics(x)).all())


def test_log_draws_of_tiny_shapes_have_their_mean():
    """E[log G(α)] = ψ(α), far below what a number can hold."""
    alpha = torch.tensor([1e-3, 1e-2], dtype=F64)
    draws = log_gamma_draws(alpha, (20_000,), generator())
    error = draws.std(0) / 20_000**0.5
    assert bool(((draws.mean(0) - torch.digamma(alpha)).abs() < 5 * error).all())


def test_draws_differentiate_under_every_transform():
    alpha = torch.tensor([0.3, 2.0, 50.0], dtype=F64)
    drawn = torch._standard_gamma(alpha, generator=generator())
    expected = torch._standard_gamma_grad(alpha, drawn)
    slope = torch.func.grad(lambda alpha, drawn: _Draw.apply(alpha, drawn).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(slope(alpha, drawn), expected)
        torch.testing.assert_close(torch.func.vmap(slope)(alpha, drawn), expected)
        rows = torch.func.vmap(slope, in_dims=(None, 0))(alpha, drawn[None].expand(4, 3))
        torch.testing.assert_close(rows, expected.expand(4, 3))
        torch.testing.assert_close(torch.func.jacrev(_Draw.apply)(alpha, drawn), torch.diag(expected))
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.func.grad(lambda a: slope(a, drawn).sum())(alpha)


@pytest.mark.parametrize("family", [Gamma(2), Beta(2), Dirichlet(3)], ids=repr)
def test_gradients_of_draws_can_be_vectorised_and_captured(family):
    naturals = family.natural_from_free(torch.randn(4, family.num_free, generator=generator(), dtype=F64))

    def slope(natural):
        return torch.func.grad(lambda n: family.statistics(family.sample(n, (500,))).mean(0).sum())(natural)

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(0)
        batched = torch.func.vmap(slope, randomness="different")
        found = batched(naturals)
        captured = make_fx(batched)(naturals)(naturals)
    expected = torch.func.vmap(torch.func.grad(lambda n: family.mean_parameters(n).sum()))(naturals)
    for gradient in (found, captured):
        assert bool(((gradient - expected).abs() < 0.35 * expected.abs().amax(-1, keepdim=True)).all())
    assert not torch.equal(found, captured)


def test_too_few_categories_are_refused():
    for cls in (Dirichlet, Categorical):
        with pytest.raises(ValueError, match="two categories and one row at least"):
            cls(1)
        with pytest.raises(ValueError, match="two categories and one row at least"):
            cls(3, rows=0)


def test_pieces_of_a_probability_vector():
    family, alpha = Dirichlet(3, rows=2), torch.arange(1.0, 7.0)
    whole, part = family.marginal(alpha - 1, 3, 6)
    assert whole == Dirichlet(3)
    torch.testing.assert_close(part, alpha[3:] - 1)
    one, part = family.marginal(alpha - 1, 4, 5)
    assert one == Beta(1)
    torch.testing.assert_close(part, torch.tensor([4.0, 9.0]))
    with pytest.raises(ValueError, match=r"x\[3:5\] is neither whole rows .* nor one coordinate"):
        family.marginal(alpha - 1, 3, 5)


def test_too_many_values_are_refused():
    assert Categorical(4, rows=8).enumerate().shape == (65_536, 8)
    with pytest.raises(ValueError, match="262144 joint values of 9 discrete numbers are too many"):
        Categorical(4, rows=9).enumerate()
