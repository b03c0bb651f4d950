"""Results with personal posteriors: what they report, a client's view of them, saving and loading."""

import json

import numpy as np
import pytest
import torch
from small_personal import heldout, hospitals, personal
from torch.distributions import Normal, kl_divergence

import pvi
from pvi.algorithms.protocol import SHARED, Energy
from pvi.conclusion import elbo_name, objective
from pvi.diagnostics import personal_metrics
from pvi.progress import describe

ZETA = 1.0


def test_the_objective_against_quadrature_and_torchs_divergence():
    result, total = personal(), 0.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    for name, (x, y) in hospitals(seed=0).items():
        own = result.personal[name]
        mean, sd = own.mean, own.sd
        centre = (x @ mean["weights"] + mean["bias"]).numpy()
        spread = (x.square() @ sd["weights"].square() + sd["bias"].square()).sqrt().numpy()
        predictor = centre[:, None] + spread[:, None] * nodes
        likelihood = y.numpy()[:, None] * predictor - np.logaddexp(0, predictor)
        total += float((likelihood @ weights).sum() / weights.sum())
        for site in ("weights", "bias"):
            parts = [Normal(q.mean[site], q.sd[site]) for q in (own, result.posterior)]
            total -= ZETA * float(kl_divergence(*parts).sum())
    assert result.elbo == pytest.approx(total, rel=1e-9)
    last = result.history[-1]
    assert last.elbo == pytest.approx(sum(last.expected_log_likelihood.values()) - last.kl, rel=1e-12)


def test_what_the_free_energy_is_called():
    result = personal()
    assert result.elbo_name == "objective"
    assert f"objective {result.elbo:.3f} nats" in repr(result)
    assert "ELBO" not in repr(result)
    assert "Σ" not in repr(result)
    plain = pvi.fit("logistic_regression", hospitals(seed=0), rounds=1)
    assert (plain.elbo_name, "objective" in plain.settings) == ("ELBO", False)
    assert describe(result.history[-1], name="objective").startswith("objective -")
    assert (elbo_name(pvi.PVI()), elbo_name(pvi.PFedBayes())) == ("ELBO", "objective")


@pytest.mark.parametrize(
    ("energy", "said"),
    [
        (Energy(True, 10.0), "Σ_m (E_q_m[log p(y_m | θ)] - 10 KL(q_m, q))"),
        (Energy(True, 1.0), "Σ_m (E_q_m[log p(y_m | θ)] - KL(q_m, q))"),
        (Energy(True, 0.0), "Σ_m E_q_m[log p(y_m | θ)]"),
        (Energy(False, 0.5), "Σ_m E_q[log p(y_m | θ)] - 0.5 KL(q, p)"),
        (Energy(False, 0.0), "Σ_m E_q[log p(y_m | θ)]"),
        (SHARED, "Σ_m E_q[log p(y_m | θ)] - KL(q, p)"),
    ],
)
def test_the_formula(energy, said):
    assert objective(energy) == said


def test_a_progress_bar_says_objective(capsys):
    pvi.fit("logistic_regression", hospitals(seed=0), algorithm="pfedbayes", rounds=1, progress=True)
    said = capsys.readouterr().out
    assert "objective -" in said
    assert "ELBO" not in said


def test_a_clients_view():
    result = personal()
    north = result.of_client("north")
    x, _ = heldout()["north"]
    assert torch.equal(north.predict_mean(x)["y"], result.predict_mean(x, client="north")["y"])
    assert (list(north.data), list(north.factors), dict(north.personal)) == (["north"], ["north"], {})
    for name in ("mean_draws", "predict"):
        drawn = getattr(result, name)(x, client="north", num_samples=7)["y"]
        assert torch.equal(getattr(north, name)(x, num_samples=7)["y"], drawn)


def test_clients_that_there_are_not():
    result, (x, _) = personal(), heldout()["north"]
    there = r"client 'west' has no personal posterior; there are \['north', 'south', 'island'\]"
    with pytest.raises(ValueError, match=there):
        result.predict_mean(x, client="west")
    with pytest.raises(ValueError, match=there):
        result.of_client("west")
    with pytest.raises(ValueError, match="algorithm='pfedbayes' makes them"):
        result.of_client("north").of_client("north")


def test_saving_and_loading(tmp_path):
    result = personal()
    result.save(tmp_path / "run")
    found = pvi.load(tmp_path / "run")
    assert list(found.personal) == list(result.personal)
    for name, posterior in result.personal.items():
        assert torch.equal(found.personal[name].natural, posterior.natural)
        assert found.personal[name].coordinates.names == posterior.coordinates.names
    assert torch.equal(found.posterior.natural, result.posterior.natural)
    assert (found.settings, found.elbo_name, repr(found)) == (dict(result.settings), "objective", repr(result))
    assert personal_metrics(found, heldout()).equals(personal_metrics(result, heldout()))
    found.of_client("south").save(tmp_path / "south")
    south = pvi.load(tmp_path / "south")
    assert torch.equal(south.posterior.natural, result.personal["south"].natural)
    assert (dict(south.personal), list(south.factors)) == ({}, ["south"])


def test_results_of_before_have_none(tmp_path):
    result = pvi.fit("logistic_regression", hospitals(seed=0), rounds=1)
    result.save(tmp_path)
    path = tmp_path / "result.json"
    description = json.loads(path.read_text())
    assert description.pop("personal") == []
    path.write_text(json.dumps(description))
    assert dict(pvi.load(tmp_path).personal) == {}


def test_more_clients_than_are_asked_for_their_updates(caplog):
    data = {f"{name}{copy}": rows for copy in range(2) for name, rows in hospitals(seed=0).items()}
    result = pvi.fit("logistic_regression", data, algorithm=pvi.PFedBayes(subset=2, local_iterations=2), rounds=1)
    assert list(result.personal) == list(data)
    for posterior in result.personal.values():
        assert not torch.equal(posterior.natural, result.posterior.natural)
    assert "never collected" not in caplog.text
