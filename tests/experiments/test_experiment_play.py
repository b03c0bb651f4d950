"""Curves: what is in them, against independent computations."""

import numpy as np
import pandas as pd
import pytest
import torch
import toy_experiment
from oracles import global_vi
from torch.distributions import Normal, kl_divergence
from toy_experiment import ADAM, BEST, PVI, VCL, Toy

import pvi
from pvi.experiments import folder
from pvi.experiments.play import frame, play
from pvi.experiments.protocol import Method


@pytest.fixture(scope="module")
def parts():
    return list(play(Toy(rows=61)))


@pytest.fixture(scope="module")
def curves(parts):
    return pd.concat([frame(part.records) for part in parts], ignore_index=True)


def test_a_line_a_round_of_every_method_at_every_seed(parts, curves):
    assert [(part.seed, part.method) for part in parts] == [(s, m) for s in (0, 1) for m in (BEST, PVI, ADAM, VCL)]
    assert list(curves.columns[:3]) == ["seed", "method", "round"]
    assert {"messages", "seconds", "elbo", "elbo_standard_error", "log_likelihood", "ece"} <= set(curves)
    assert not curves.duplicated(["seed", "method", "round"]).any()
    for part, rounds in zip(parts, (1, 4, 3, 1) * 2, strict=True):
        assert [record["round"] for record in part.records] == list(range(1, rounds + 1))
        seconds = [record["seconds"] for record in part.records]
        assert seconds == sorted(seconds)


def test_messages_are_those_so_far(curves):
    one = curves[curves["seed"] == 0].set_index("method")["messages"]
    assert one[[PVI]].tolist() == [4, 8, 12, 16]  # both clients, there and back
    assert one[[VCL]].tolist() == [4]
    assert one[[ADAM]].tolist() == [10, 20, 30]  # as the method says


def test_elbo_and_divergence_are_those_of_the_optimum(parts, curves):
    for seed in (0, 1):
        x, y = toy_experiment.rows(seed, 61)
        best = global_vi(np.hstack([x.numpy(), np.ones((61, 1))]), y.numpy())
        own = {part.method: part for part in parts if part.seed == seed}
        assert own[BEST].records[-1]["elbo"] == pytest.approx(best.elbo, abs=1e-6)
        assert not {"elbo_gap", "kl"} & set(own[BEST].records[-1])
        optimum = own[BEST].result.posterior
        for method in (PVI, ADAM, VCL):
            last = own[method].records[-1]
            assert last["elbo_gap"] == pytest.approx(best.elbo - last["elbo"], abs=1e-6)
            q = own[method].result.posterior
            laws = [(Normal(q.mean[k], q.sd[k]), Normal(optimum.mean[k], optimum.sd[k])) for k in ("weights", "bias")]
            expected = sum(float(kl_divergence(*pair).sum()) for pair in laws)
            assert last["kl"] == pytest.approx(expected, rel=1e-9)
            moments = np.append(optimum.mean["weights"].numpy(), optimum.mean["bias"].numpy())
            np.testing.assert_allclose(moments, best.mean, atol=1e-5)
    exact = curves[curves["elbo_standard_error"] == 0]
    assert (exact["elbo_gap"].dropna() > -1e-8).all()


def test_curves_are_those_of_fit(parts):
    setting = Toy(rows=61).setting(1, None)
    result = pvi.fit(setting.model, setting.clients, damping=0.5, rounds=4, seed=1)
    found = next(part for part in parts if part.seed == 1 and part.method == PVI)
    assert torch.equal(found.result.posterior.natural, result.posterior.natural)
    assert [record["elbo"] for record in found.records] == [record.elbo for record in result.history]
    expected = pvi.diagnostics.heldout_classification(result, setting.test)
    assert {name: found.records[-1][name] for name in expected} == expected


def test_every_so_many_rounds_and_the_last():
    (found,) = (part for part in play(Toy(rounds=5, every=2), seeds=(0,), only=[PVI]) if part.method == PVI)
    assert ["accuracy" in record for record in found.records] == [False, True, False, True, True]
    assert all("elbo_gap" in record for record in found.records)
    with pytest.raises(ValueError, match="PVI: every must be at least 1, not 0"):
        Method("PVI", {}, every=0)
    with pytest.raises(ValueError, match="PVI: rounds must be at least 1, not 0"):
        Method("PVI", {}, rounds=0)
    with pytest.raises(ValueError, match=r"damping must lie in \(0, 1\], got 2"):
        Method("PVI", {"damping": 2})


def test_only_some_methods_and_the_reference():
    assert [part.method for part in play(Toy(), seeds=(0,), only=[VCL])] == [BEST, VCL]
    with pytest.raises(ValueError, match="no method 'EP'; there are 'global VI', 'PVI', 'global VI, Adam', 'VCL'"):
        next(play(Toy(), only=[VCL, "EP"]))


def test_what_is_done_is_left_out_and_gaps_are_the_same():
    whole = {(part.seed, part.method): part.records for part in play(Toy())}
    done = [(0, BEST), (0, PVI), (1, BEST), (1, PVI), (1, ADAM), (1, VCL)]
    left = list(play(Toy(), done=done))
    assert [(part.seed, part.method) for part in left] == [(0, ADAM), (0, VCL)]
    for part in left:
        for record, expected in zip(part.records, whole[part.seed, part.method], strict=True):
            assert {**record, "seconds": 0} == {**expected, "seconds": 0}


def test_who_reports_hears_of_every_round():
    heard = []
    parts = list(play(Toy(), seeds=(1,), report=heard.append))
    assert [(stand.method, stand.round, stand.rounds) for stand in heard] == [
        (part.method, record["round"], len(part.records)) for part in parts for record in part.records
    ]
    assert {stand.seed for stand in heard} == {1}


def test_digests_change_with_every_row_and_name(monkeypatch):
    before = folder.digest(Toy().setting(0, None))
    assert before == folder.digest(Toy().setting(0, None))
    assert before != folder.digest(Toy().setting(1, None))
    setting = Toy().setting(0, None)
    setting.test[1][-1] = 1 - setting.test[1][-1]
    assert folder.digest(setting) != before
    monkeypatch.setattr(toy_experiment, "SHIFT", 1e-15)
    assert folder.digest(Toy().setting(0, None)) != before


def test_presets():
    assert folder.preset(Toy, False, {}) == Toy()
    assert folder.preset(Toy, True, {}) == Toy(rounds=2)
    assert folder.preset(Toy, True, {"rounds": 7, "rows": 30}) == Toy(rounds=7, rows=30)
    assert folder.scaled(Toy(rounds=2, rows=30)) == ["rows 60 -> 30", "rounds 4 -> 2"]
    assert folder.scaled(Toy()) == []
    with pytest.raises(ValueError, match="seeds must be at least 1, not 0"):
        folder.preset(Toy, True, {"seeds": 0})
