"""Aggregators of Gaussians with their own precisions, against densities and sums written out."""

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from pvi.aggregators import Experts, LocationAverage
from pvi.factors import Factor
from pvi.families import DiagonalGaussian, FullGaussian, Product
from pvi.families.precision import natural_from_precision, precision
from pvi.posterior import Posterior

DOUBLE = torch.float64
MEAN_FIELD = Product(("a", "b"), (DiagonalGaussian(2), DiagonalGaussian(3)))
FULL = Product(("a+b",), (FullGaussian(5),))
ROWS = torch.tensor([30.0, 5.0, 100.0], dtype=DOUBLE)
SHARES = list(ROWS / 500)  # others have rows too, but did not answer


def gaussians(family, count, seed=0):
    """Means ``[count, 5]`` and precisions, whose sizes differ by orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)
    loc = 3 * torch.randn(count, 5, generator=generator, dtype=DOUBLE)
    size = 10.0 ** torch.linspace(-2, 3, 5, dtype=DOUBLE)
    if family is MEAN_FIELD:
        return loc, size[torch.rand(count, 5, generator=generator).argsort(-1)]
    root = torch.randn(count, 5, 5, generator=generator, dtype=DOUBLE)
    return loc, root @ root.mT + torch.diag_embed(size.expand(count, 5))


def changes(family, seed=0):
    """The posterior that the server holds, the clients' changes of it, their means and precisions."""
    loc, own = gaussians(family, 4, seed)
    held, *answers = (natural_from_precision(family, m, p) for m, p in zip(loc, own, strict=True))
    deltas = [Factor(family, answer - held, torch.zeros((), dtype=DOUBLE)) for answer in answers]
    return Posterior(family, held, None), deltas, loc[1:], own[1:]


def density(family, loc, own):
    if family is MEAN_FIELD:
        return lambda x: Normal(loc, own**-0.5).log_prob(x).sum(-1)
    return MultivariateNormal(loc, precision_matrix=own).log_prob


@pytest.mark.parametrize("family", [MEAN_FIELD, FULL], ids=["mean field", "full"])
@pytest.mark.parametrize("weights", ["rows", "equal"])
def test_experts_multiply(family, weights):
    """log q = Σ π_n log q_n + constant, by torch's densities; Λ = Σ π_n Λ_n and Λ μ = Σ π_n Λ_n μ_n."""
    held, deltas, loc, own = changes(family)
    share = ROWS / ROWS.sum() if weights == "rows" else torch.full((3,), 1 / 3, dtype=DOUBLE)
    found, fraction = Experts(weights)(held, deltas, SHARES)
    assert fraction == 1
    x = torch.randn(50, 5, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    mean, after = family.location(found.natural), precision(family, found.natural)
    parts = zip(share, loc, own, strict=True)
    gap = density(family, mean, after)(x) - sum(w * density(family, m, p)(x) for w, m, p in parts)
    assert (gap - gap[0]).abs().max() < 1e-8 * gap.abs().max()
    torch.testing.assert_close(after, torch.tensordot(share, own, 1))
    matrices = torch.diag_embed(own) if own.ndim == 2 else own
    pull = torch.einsum("n,nij,nj->i", share, matrices, loc)
    torch.testing.assert_close(mean, torch.linalg.solve(torch.einsum("n,nij->ij", share, matrices), pull))


def test_of_one_expert_it_is_the_answer_and_of_none_what_was_held():
    held, deltas, _, _ = changes(FULL)
    torch.testing.assert_close(Experts()(held, deltas[:1], [0.2])[0].natural, held.natural + deltas[0].natural)
    assert Experts()(held, [], []) == (held, 1.0)


@pytest.mark.parametrize("family", [MEAN_FIELD, FULL], ids=["mean field", "full"])
def test_experts_are_never_improper(family):
    """Nor when what the server holds is much wider or narrower than the answers."""
    held, deltas, _, own = changes(family)
    answers = [held.natural + delta.natural for delta in deltas]
    smallest = own.min() if family is MEAN_FIELD else torch.linalg.eigvalsh(own).min()
    for scale in (1e-8, 1e-4, 1.0, 1e4, 1e8):
        base = Posterior(family, scale * held.natural, None)
        moved = [Factor(family, answer - base.natural, torch.zeros((), dtype=DOUBLE)) for answer in answers]
        for share in torch.rand(10, 3, generator=torch.Generator().manual_seed(1)).tolist():
            found, _ = Experts()(base, moved, share)
            after = precision(family, found.natural)
            least = after.min() if family is MEAN_FIELD else torch.linalg.eigvalsh(after).min()
            assert least > 0.99 * smallest


@pytest.mark.parametrize("family", [MEAN_FIELD, FULL], ids=["mean field", "full"])
def test_average_of_means_and_of_precisions(family):
    held, deltas, loc, own = changes(family)
    share = ROWS / ROWS.sum()
    found, _ = LocationAverage("rows", precision="averaged")(held, deltas, SHARES)
    torch.testing.assert_close(family.location(found.natural), share @ loc)
    torch.testing.assert_close(precision(family, found.natural), torch.tensordot(share, own, 1))


def test_average_of_means_and_sum_of_precisions():
    held, deltas, loc, own = changes(MEAN_FIELD)
    before = precision(MEAN_FIELD, held.natural)
    wider = [
        Factor(MEAN_FIELD, natural_from_precision(MEAN_FIELD, m, before + p) - held.natural, delta.log_scale)
        for m, p, delta in zip(loc, own, deltas, strict=True)
    ]
    found, _ = LocationAverage("equal", precision="summed")(held, wider, SHARES)
    torch.testing.assert_close(MEAN_FIELD.location(found.natural), loc.mean(0))
    torch.testing.assert_close(precision(MEAN_FIELD, found.natural), before + own.sum(0))


def test_words_that_mean_nothing():
    with pytest.raises(ValueError, match=r"weights is 'rows' or 'equal', got 'labels'"):
        Experts("labels")
    with pytest.raises(ValueError, match=r"precision is 'kept', 'averaged' or 'summed', got 'both'"):
        LocationAverage(precision="both")
