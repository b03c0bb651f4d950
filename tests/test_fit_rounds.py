"""A run round by round: the same numbers as `fit`, nothing ahead of who asks."""

import pytest
import torch

import pvi
from pvi import run
from pvi.models import logistic_regression


def clients(rows=(30, 20)):
    generator = torch.Generator().manual_seed(3)
    found = {}
    for index, number in enumerate(rows):
        x = torch.randn(number, 2, generator=generator, dtype=torch.float64)
        found[f"site {index}"] = (x, torch.bernoulli(torch.sigmoid(x[:, 0]), generator=generator))
    return found


def test_every_round_is_the_result_of_a_run_of_so_many_rounds():
    found = list(pvi.fit_rounds(logistic_regression.model, clients(), damping=0.5, rounds=3))
    assert [len(result.history) for result in found] == [1, 2, 3]
    for number, result in enumerate(found, 1):
        whole = pvi.fit(logistic_regression.model, clients(), damping=0.5, rounds=number)
        assert torch.equal(result.posterior.natural, whole.posterior.natural)
        assert result.elbo == whole.elbo
        assert result.settings == whole.settings


def test_nothing_is_computed_before_it_is_asked_for(monkeypatch):
    played, play = [], run.play_round
    monkeypatch.setattr(run, "play_round", lambda plan, state: played.append(1) or play(plan, state))
    found = pvi.fit_rounds(logistic_regression.model, clients(), rounds=5)
    assert not played
    next(found)
    next(found)
    assert len(played) == 2


def test_errors_of_input_come_with_the_call():
    with pytest.raises(ValueError, match="rounds must be a whole number"):
        pvi.fit_rounds(logistic_regression.model, clients(), rounds=0)
    with pytest.raises(ValueError, match="3 names fit no dimension"):
        pvi.fit_rounds(logistic_regression.model, clients(), columns=["a", "b", "c"])


def test_threads_are_set_while_a_round_is_played_only(monkeypatch):
    seen, play, before = [], run.play_round, torch.get_num_threads()
    monkeypatch.setattr(
        run, "play_round", lambda plan, state: seen.append(torch.get_num_threads()) or play(plan, state)
    )
    for _ in pvi.fit_rounds(logistic_regression.model, clients(), rounds=2, threads=2):
        assert torch.get_num_threads() == before
    assert seen == [2, 2]


def test_the_algorithms_own_number_of_rounds():
    assert len(list(pvi.fit_rounds(logistic_regression.model, clients(), algorithm="vcl"))) == 1
