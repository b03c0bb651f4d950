"""Latents that belong to one client or one row: they stay, and the shared posterior is that of the pooled rows."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from datasets import heart_disease
from oracles import global_vi
from oracles.mixed import mixed_vi
from pyro.infer import TraceEnum_ELBO
from toy_programs import F64, normal, program_of

import pvi
from pvi.client import Update
from pvi.families import Coordinates, site_coordinates
from pvi.models import mixed_logistic_regression
from pvi.problem import build_problem
from pvi.programs.program import log_likelihood
from pvi.solvers import SVI, PyroSVI

EFFECTS = {"north": -1.5, "south": 0.3, "east": 2.0}


def clients(rows=60):
    generator = torch.Generator().manual_seed(4)
    found = {}
    for name, effect in EFFECTS.items():
        x = torch.randn(rows, 2, generator=generator, dtype=F64)
        chance = torch.sigmoid(x @ torch.tensor([1.0, -0.5], dtype=F64) + effect)
        found[name] = (x, (torch.rand(rows, generator=generator, dtype=F64) < chance).to(F64))
    return found


def with_ones(data):
    return [(np.c_[x.numpy(), np.ones(len(x))], y.numpy()) for x, y in data.values()]


@pytest.fixture(scope="module")
def full():
    return pvi.fit(
        mixed_logistic_regression.model, clients(), guide="full", damping=0.5, rounds=12, acceleration="anderson"
    )


def test_the_shared_posterior_is_that_of_all_latents_together(full):
    """Intercepts are independent of each other given the shared coefficients, so nothing is lost by keeping them."""
    best = mixed_vi(with_ones(clients()), tau=1.0)
    found = full.posterior.family.standard(full.posterior.natural)
    np.testing.assert_allclose(found["weights+bias.loc"].numpy(), best.mean[:3], atol=1e-5)
    np.testing.assert_allclose(found["weights+bias.covariance_matrix"].numpy(), best.covariance[:3, :3], atol=1e-5)
    assert full.elbo == pytest.approx(best.elbo, abs=1e-6)
    for index, posterior in enumerate(full.private.values()):
        assert posterior.mean["effect"].item() == pytest.approx(best.mean[3 + index], abs=1e-5)
        assert posterior.sd["effect"].item() == pytest.approx(best.covariance[3 + index, 3 + index] ** 0.5, abs=1e-5)


def test_mean_field_keeps_them_independent():
    result = pvi.fit(mixed_logistic_regression.model, clients(), damping=0.5, rounds=30, acceleration="anderson")
    best = mixed_vi(with_ones(clients()), tau=1.0, covariance="diagonal")
    assert result.elbo == pytest.approx(best.elbo, abs=1e-6)
    np.testing.assert_allclose(result.posterior.mean["weights"].numpy(), best.mean[:2], atol=1e-3)


def test_nothing_private_leaves_the_client(full):
    assert Update._fields == ("client", "delta", "beside")
    assert Update._field_defaults == {"beside": None}  # of methods whose server sums something up beside q
    assert full.posterior.site_names == ("weights", "bias")
    for factor in full.factors.values():
        assert factor.family == full.posterior.family
    assert set(full.private) == set(EFFECTS)
    assert full.private["north"].site_names == ("effect",)


def test_predictions_for_a_client_use_its_own_latents(full):
    x = normal(5, 2)
    known = full.predict_mean(x, client="east", num_samples=4000, method="draws")["y"]
    unknown = full.predict_mean(x, num_samples=4000)["y"]
    local = full.local["east"]
    draws = local.sample(4000, torch.Generator().manual_seed(0))
    logits = draws["weights"] @ x.mT + (draws["bias"] + draws["effect"])[:, None]
    torch.testing.assert_close(known, torch.sigmoid(logits).mean(0))
    assert bool((known > unknown).all())  # the east lies above the average
    with pytest.raises(ValueError, match=r"client 'west' has no latents of its own here; there are \['north'"):
        full.predict_mean(x, client="west")


def test_coefficients_are_still_odds_ratios(full):
    from pvi.report import coefficient_table

    table = coefficient_table(full)
    weights = full.posterior.mean["weights"]
    np.testing.assert_allclose(table["odds_ratio"][:2], weights.exp().numpy())


def test_they_survive_a_checkpoint(full, tmp_path):
    full.save(tmp_path)
    again = pvi.load(tmp_path, model=mixed_logistic_regression.model)
    x = normal(5, 2)
    assert torch.equal(full.predict_mean(x, client="north")["y"], again.predict_mean(x, client="north")["y"])


def test_a_plate_of_rows_makes_latents_private():
    """One effect a row: overdispersed counts. One client is all of VI, so it must be the pooled optimum."""

    def model(y):
        rate = pyro.sample("rate", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            effect = pyro.sample("effect", dist.Normal(0.0, 0.5))
            pyro.sample("y", dist.Poisson((rate + effect).exp()), obs=y)

    y = torch.poisson(3 * torch.ones(12, dtype=F64), generator=torch.Generator().manual_seed(0))
    result = pvi.fit(model, {"a": (y[:5],), "b": (y[5:],)}, damping=0.5, rounds=30, acceleration="anderson")
    design = np.c_[np.ones(12), np.eye(12)]
    precision = np.diag(np.r_[1.0, np.full(12, 4.0)])
    best = global_vi(design, y.numpy(), "poisson", prior_precision=precision)
    assert result.elbo == pytest.approx(best.elbo, abs=1e-6)
    assert result.posterior.mean["rate"].item() == pytest.approx(best.mean[0], abs=1e-4)
    np.testing.assert_allclose(result.private["b"].mean["effect"].numpy(), best.mean[6:], atol=1e-4)
    assert result.predict(y[:3], num_samples=7)["y"].shape == (7, 3)


def test_one_client_of_all_latents_is_an_error_to_pool():
    with pytest.raises(pvi.ProgramError, match=r"sites \['effect'\] are each client's own; pooled rows would share"):
        pvi.fit(mixed_logistic_regression.model, clients(), algorithm="global-vi")


def test_a_hand_written_guide_may_name_their_families_and_starts():
    def guide(x, y):
        pyro.sample("weights", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        pyro.sample("effect", dist.Normal(0.5, 0.2))
        pyro.sample("bias", dist.Normal(0.0, 1.0))

    result = pvi.fit(mixed_logistic_regression.model, clients(), guide, damping=0.5, rounds=2)
    assert result.posterior.site_names == ("weights", "bias")
    assert result.private["east"].site_names == ("effect",)


def mixture(y):
    centre = pyro.sample("centre", dist.Normal(torch.tensor([-1.0, 1.0]), 2.0).to_event(1))
    share = pyro.sample("share", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(y)):
        second = pyro.sample("second", dist.Bernoulli(logits=share))
        pyro.sample("y", dist.Normal(centre[second.long()], 0.5), obs=y)


def test_discrete_latents_are_summed_out():
    y = normal(9)
    program, batch = program_of(mixture, y)
    assert [site.name for site in program.sites.enumerated] == ["second"]
    x = torch.tensor([[0.3, -0.4, 0.2], [1.0, 2.0, -3.0]], dtype=F64)

    def by_hand(x):
        share = torch.stack([torch.nn.functional.logsigmoid(-x[2]), torch.nn.functional.logsigmoid(x[2])])
        return torch.logsumexp(share + dist.Normal(x[:2], 0.5).log_prob(y[:, None]), 1).sum()

    expected = torch.stack([by_hand(row) for row in x])
    found = torch.func.vmap(lambda row: log_likelihood(program, row, batch))(x)
    torch.testing.assert_close(found, expected)
    gradient = torch.func.grad(lambda row: log_likelihood(program, row, batch))(x[0])
    torch.testing.assert_close(gradient, torch.func.grad(by_hand)(x[0]))
    rows = torch.tensor([1, 4, 8])
    part = log_likelihood(program, x[0], batch, rows)
    torch.testing.assert_close(part, 3 * log_likelihood(program, x[0], batch.take(rows)))


def test_stock_svi_must_be_told_to_enumerate():
    with pytest.raises(ValueError, match=r"sites \['second'\] are discrete.*TraceEnum_ELBO\(max_plate_nesting=1\)"):
        pvi.fit(mixture, [(normal(4),)], rounds=1, solver=PyroSVI(steps=1))


@pytest.mark.slow
def test_enumeration_by_stock_svi_and_by_the_functional_engine_agree():
    generator = torch.Generator().manual_seed(1)
    label = torch.rand(80, generator=generator) < 0.4
    y = torch.where(label, 1.5, -2.0).to(F64) + 0.5 * torch.randn(80, generator=generator, dtype=F64)
    data = [(y[:30],), (y[30:],)]
    settings = {"rounds": 3, "schedule": "sequential", "damping": 1.0}
    elbo = TraceEnum_ELBO(max_plate_nesting=1, num_particles=4)
    stock = pvi.fit(mixture, data, solver=PyroSVI(steps=400, elbo=elbo), **settings)
    own = pvi.fit(mixture, data, solver=SVI(steps=400), **settings)
    for site in ("centre", "share"):
        sd = own.posterior.sd[site]
        # Each run ends within about 0.2 posterior sds of the optimum with so few steps.
        assert bool(((stock.posterior.mean[site] - own.posterior.mean[site]).abs() < 0.6 * sd).all())
    assert stock.elbo == pytest.approx(own.elbo, abs=0.3)


@pytest.mark.slow
def test_mixed_effects_on_heart_disease_agree_with_nuts():
    from oracles.nuts import mixed_effects

    data = {name: (torch.as_tensor(x), torch.as_tensor(y)) for name, (x, y) in heart_disease(intercept=False).items()}
    result = pvi.fit(
        mixed_logistic_regression.model, data, guide="full", damping=0.5, rounds=20, acceleration="anderson"
    )
    reference = mixed_effects(1.0)
    for site in ("weights", "bias"):
        sd = torch.as_tensor(reference.sd[site])
        off = (result.posterior.mean[site] - torch.as_tensor(reference.mean[site])).abs() / sd
        assert off.max().item() < 0.15, f"{site}: {off.max().item():.3f} sd"
        ratio = result.posterior.sd[site] / sd
        assert ratio.min().item() > 0.85, f"{site}: sd ratio {ratio.min().item():.3f}"
    means = torch.stack([posterior.mean["effect"] for posterior in result.private.values()])
    off = (means - torch.as_tensor(reference.mean["intercepts"])).abs() / torch.as_tensor(reference.sd["intercepts"])
    assert off.max().item() < 0.15


def scaled_effect(y):
    """The client's effect has a scale that is shared and latent: its prior counts once, however many rows there are."""
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    effect = pyro.sample("effect", dist.Normal(0.0, scale), infer={"pvi": "private"})
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(effect, 1.0), obs=y)


def test_mini_batches_count_a_clients_own_prior_once():
    program, batch = program_of(scaled_effect, normal(4))
    private = program_of(scaled_effect, normal(4))[0].sites.private
    coordinates = (*program.coordinates.sites, site_coordinates("effect", (), private[0].support))
    program = program._replace(coordinates=Coordinates(coordinates))
    x = torch.tensor([0.2, -1.3], dtype=F64)
    whole = log_likelihood(program, x, batch)
    parts = [log_likelihood(program, x, batch, torch.tensor([row])) for row in range(4)]
    torch.testing.assert_close(torch.stack(parts).mean(), whole)


def test_what_mini_batches_cannot_do_is_refused():
    def kinds(y):
        pyro.sample("loc", dist.Normal(0.0, 1.0))
        kind = pyro.sample("kind", dist.Bernoulli(0.5), infer={"pvi": "private"})
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(2 * kind, 1.0), obs=y)

    program, batch = program_of(kinds, normal(4))
    with pytest.raises(pvi.ProgramError, match=r"sites \['kind'\] are discrete and have one value a client"):
        log_likelihood(program, torch.zeros(1, dtype=F64), batch, torch.tensor([0, 1]))
    with pytest.raises(pvi.ProgramError, match=r"sites \['kind'\] are each client's own; pooled rows would share"):
        pvi.fit(kinds, [(normal(4),), (normal(5),)], algorithm="global-vi")

    def subsampled(y):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y), subsample_size=2) as rows:
            own = pyro.sample("own", dist.Normal(loc, 1.0))
            pyro.sample("y", dist.Normal(own, 1.0), obs=y[rows])

    with pytest.raises(pvi.ProgramError, match=r"sites \['own'\] have one private value a row, but their plate"):
        pvi.fit(subsampled, [(normal(6),)])


def test_a_latent_may_depend_on_a_discrete_one():
    def model(y):
        loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
        far = pyro.sample("far", dist.Bernoulli(0.3), infer={"pvi": "private"})
        own = pyro.sample("own", dist.Normal(5 * far, 1.0), infer={"pvi": "private"})
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(loc + own, 1.0), obs=y)

    y = normal(5)
    device = torch.device("cpu")
    problem = build_problem(model, [(y,)], None, device, F64).clients["client 0"]
    assert problem.absorbed is None
    state = torch.get_rng_state()
    found = log_likelihood(problem.program, torch.tensor([0.3, 4.0], dtype=F64), problem.batch)
    assert torch.equal(state, torch.get_rng_state())
    centres = torch.tensor([0.0, 5.0], dtype=F64)
    own = torch.tensor([0.7, 0.3], dtype=F64).log() + dist.Normal(centres, 1.0).log_prob(torch.tensor(4.0, dtype=F64))
    expected = torch.logsumexp(own, 0) + dist.Normal(torch.tensor(4.3, dtype=F64), 1.0).log_prob(y).sum()
    torch.testing.assert_close(found, expected)


def test_a_shared_prior_must_not_depend_on_private_latents():
    def model(y):
        own = pyro.sample("own", dist.Normal(0.0, 1.0), infer={"pvi": "private"})
        loc = pyro.sample("loc", dist.Normal(own, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(loc, 1.0), obs=y)

    with pytest.raises(pvi.ProgramError, match=r"prior of the shared sites depends on the private sites \['own'\]"):
        pvi.fit(model, [(normal(4),)])


def test_a_plate_of_outcomes_is_no_plate_of_rows():
    """Two outcomes a row: their coefficients lie in a plate with observations, but belong to everybody."""

    def model(x, y):
        with pyro.plate("outcomes", 2):
            slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))
            with pyro.plate("rows", len(x), dim=-2):
                pyro.sample("y", dist.Normal(x[:, None] * slope, 1.0), obs=y)

    x = normal(7)
    result = pvi.fit(model, [(x[:3], x[:3, None] * torch.ones(2)), (x[3:], x[3:, None] * torch.ones(2))], rounds=2)
    assert result.posterior.site_names == ("slope",)
    assert not result.private


def test_accelerated_bounds_stay_bounds(full):
    """A mixture of conditionals is made one again: no round lies above the optimum."""
    best = mixed_vi(with_ones(clients()), tau=1.0).elbo
    assert max(record.elbo for record in full.history) <= best + 1e-6
    for local in full.local.values():
        marginal = local.family.members[0].marginal(local.natural, 0, 3)[1]
        torch.testing.assert_close(marginal, full.posterior.natural, atol=1e-8, rtol=1e-8)
