"""A prior that is no Gaussian: the error of an algorithm that needs one names the sites, and advice that holds."""

import pyro
import pyro.distributions as dist
import pytest
import torch

import pvi


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def observed(f: torch.Tensor, y: torch.Tensor) -> None:
    with pyro.plate("rows", len(f)):
        pyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def hierarchical(x, y, scale=None):
    tau = pyro.sample("tau", scale or dist.HalfCauchy(number(1.0)))
    observed(pyro.sample("b", dist.Normal(number(0.0), tau)) * x[:, 0], y)


def hierarchical_lognormal(x, y):
    hierarchical(x, y, dist.LogNormal(number(0.0), number(1.0)))


def heavy(x, y):
    a = pyro.sample("a", dist.Normal(number(0.0), 1.0))
    observed(a + pyro.sample("b", dist.StudentT(number(4.0))) * x[:, 0], y)


def chained(x, y):
    a = pyro.sample("a", dist.Normal(number(0.0), 1.0))
    observed(a + pyro.sample("b", dist.Normal(a, 1.0)) * x[:, 0], y)


def correlated(x, y):
    covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    b = pyro.sample("b", dist.MultivariateNormal(torch.zeros(2, dtype=torch.float64), covariance))
    observed(b[0] + b[1] * x[:, 0], y)


def fitted(model, **options) -> pvi.Result:
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    return pvi.fit(model, [(x, (x[:, 0] > 0).double())] * 2, algorithm=pvi.FOLA(**options), rounds=1)


@pytest.mark.parametrize(
    ("model", "structure", "said"),
    [
        (hierarchical, "diagonal", r"the prior of 'tau' \(HalfCauchy\) is not a Gaussian: .*--set structure=full"),
        (hierarchical, "full", r"'tau' \(HalfCauchy\) is not a Gaussian: .* of each other or jointly Gaussian\."),
        (hierarchical_lognormal, "diagonal", r"the prior of 'b' \(Normal\) depends on other latents: give"),
        (hierarchical_lognormal, "full", r"'b' \(Normal\) depends on other latents, and not through a mean that"),
        (heavy, "diagonal", r"but the prior of 'b' \(StudentT\) is not a Gaussian: "),
        (heavy, "full", r"but the prior of 'b' \(StudentT\) is not a Gaussian: "),
        (chained, "diagonal", r"'b' \(Normal\) depends on other latents: .*or use pvi\.FOLA\(structure='full'"),
        (correlated, "diagonal", r"'b' \(MultivariateNormal\) is not a Gaussian with independent elements: .*'full'"),
    ],
)  # fmt: skip
def test_the_sites_are_named(model, structure, said):
    with pytest.raises(ValueError, match=said) as caught:
        fitted(model, structure=structure)
    assert "A scale that is itself a latent cannot be had here" in str(caught.value)
    assert str(caught.value).endswith("algorithm='pvi' takes any prior")
    assert "DiagonalGaussian" not in str(caught.value)


@pytest.mark.parametrize("model", [chained, correlated])
def test_what_is_advised_works(model):
    assert fitted(model, structure="full").posterior.site_names


def test_another_algorithm_takes_any_prior():
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    result = pvi.fit(hierarchical, [(x, (x[:, 0] > 0).double())] * 2, rounds=1)
    assert result.posterior.site_names == ("tau", "b")


def test_subsets_larger_than_all_name_the_option():
    with pytest.raises(ValueError, match=r"there are only 2; take at most 2, .* clients_per_round .*--subset-size"):
        fitted(chained, structure="full", clients_per_round=9)


def test_a_client_without_a_posterior_of_its_own():
    result = fitted(chained, structure="full")
    x = torch.zeros(1, 1, dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"'client 0' has no posterior of its own here: .*keep_local=True \(--set keep"
    ):
        result.predict_mean(x, client="client 0")
    kept = fitted(chained, structure="full", keep_local=True)
    assert kept.predict_mean(x, client="client 0")["y"].shape == (1,)


def test_without_the_prior_a_personal_posterior_follows_its_own_rows_alone():
    """With zeta 0 another global posterior, here by other rows of another client, changes nothing."""
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    y = (x[:, 0] > 0).double()
    algorithm = pvi.PFedBayes(zeta=0.0, learning_rate=0.05, local_iterations=5, batch_size=None)
    one, other = (
        pvi.fit("logistic_regression", {"a": (x, y), "b": (x, labels)}, algorithm=algorithm, rounds=3).personal
        for labels in (y, 1 - y)
    )
    assert torch.equal(one["a"].natural, other["a"].natural)
    assert not torch.allclose(one["b"].natural, other["b"].natural)
