"""Damping: constant, decaying, searched; and runs that diverge are told from those that do not."""

import logging
from itertools import pairwise

import pytest
import torch
from datasets import breast_cancer
from test_acceleration import sorted_clients, tensors

import pvi
from pvi.damping import Auto, Constant, Decay, resolve_damping
from pvi.history import Round, falling, remote, sunken
from pvi.progress import nats


def records(elbos, error=0.0):
    blank = {"expected_log_likelihood": {}, "kl": 0.0, "communications": 0, "bytes_sent": 0, "seconds": 0.0}
    rest = {"max_delta": 0.0, "step_fraction": 1.0, "drift": 0.0, "clients": {}, "damping": 0.5}
    return [Round(number=k + 1, elbo=e, elbo_standard_error=error, **blank, **rest) for k, e in enumerate(elbos)]


@pytest.mark.parametrize(
    ("elbos", "error", "falls"),
    [
        ([-10, -8, -7, -6.5], 0.0, False),
        ([-10, -8, -9, -12, -20], 0.0, True),  # steadily
        ([-83, -132, -82.6, -133, -87, -175], 0.0, True),  # swinging, with falling peaks
        ([-83, -132, -82.6, -131, -81, -125], 0.0, False),  # swinging, but on the way up
        ([-10, -10.02, -10.04, -10.06], 0.0, False),  # less than anybody needs
        ([-10, -10.5, -11, -11.5], 0.4, False),  # within the noise
        ([-10, -9], 0.0, False),
    ],
)
def test_falling(elbos, error, falls):
    assert bool(falling(records(elbos, error))) is falls


@pytest.mark.parametrize(
    ("elbos", "error", "sinks"),
    [
        ([-100, -90, -85], 0.0, False),
        ([-100, -90, -120, -180, -300], 0.0, True),
        ([-13844, -4515, -21415, -11735, -7073], 0.0, True),  # rising again, but far below
        ([-100, -90, -120, -91, -300], 0.0, False),  # there and back
        ([-100, -90, -95, -95, -96], 0.0, False),  # a little
        ([-1, -0.5, -0.58, -0.58, -0.58], 0.0, False),  # less than anybody needs
        ([-100, -90, -120, -120, -120], 11.0, False),  # within the noise
        ([-100, -200, -300], 0.0, False),  # nothing to tell from yet
        ([], 0.0, False),
    ],
)
def test_sunken(elbos, error, sinks):
    assert bool(sunken(records(elbos, error))) is sinks


@pytest.mark.parametrize(
    ("value", "said"),
    [(-12.34567, "-12.346"), (-1.5e9, "-1500000000.000"), (-4e83, "-4e+83"), (float("nan"), "nan")],
)
def test_a_line_has_room_for_any_number(value, said):
    assert nats(value) == said


@pytest.mark.parametrize(
    ("elbo", "rows", "far"), [(-1.5e8, 2000, False), (-2e8, 100, True), (-4e83, 10, True), (5, 1, False)]
)
def test_remote(elbo, rows, far):
    (last,) = records([elbo])
    assert remote(last, rows) is far


def test_divergence_is_logged_once(caplog):
    with caplog.at_level(logging.WARNING, logger="pvi"):
        pvi.fit("logistic_regression", tensors(breast_cancer()), damping=1.0, rounds=8)
    said = [record.getMessage() for record in caplog.records if "diverges" in record.getMessage()]
    assert len(said) == 1
    assert "damping 1" in said[0]
    assert "damping='auto'" in said[0]


def test_a_search_from_an_unstable_damping_is_stable():
    clients = tensors(breast_cancer())
    best = pvi.fit("logistic_regression", clients, algorithm="global-vi")
    result = pvi.fit("logistic_regression", clients, damping=Auto(initial=1.0, grow=1.0), rounds=20)
    elbos = [record.elbo for record in result.history]
    assert all(after >= before - 1e-3 for before, after in pairwise(elbos))
    assert best.elbo - result.elbo < 0.05
    assert max(record.attempts for record in result.history) > 1
    searched = next(record for record in result.history if record.attempts > 1)
    assert searched.damping < 1.0
    assert searched.communications == 2 * len(clients) * searched.attempts
    assert result.history[-1].drift < 1e-9


def test_auto_is_a_search():
    result = pvi.fit("logistic_regression", sorted_clients(), damping="auto", rounds=4)
    assert [record.damping for record in result.history][:2] == [0.5, 0.55]


def test_decay_is_used_round_by_round():
    result = pvi.fit("logistic_regression", sorted_clients(), damping=pvi.Decay(0.5, rate=1.0), rounds=3)
    assert [record.damping for record in result.history] == pytest.approx([0.5, 0.25, 0.5 / 3])


@pytest.mark.slow
def test_a_decay_averages_the_noise_of_stochastic_solvers():
    """The spread of the last rounds' means is smaller than with the damping kept, the seeds being the same."""
    clients = sorted_clients()[:2]
    solver = pvi.solvers.SVI(steps=20, num_particles=1, window=10)

    def spread(damping):
        means = []
        pvi.fit(
            "logistic_regression", clients, damping=damping, rounds=14, solver=solver,
            progress=lambda record, posterior: means.append(posterior.mean["weights"]),
        )  # fmt: skip
        return torch.stack(means[-6:]).std(0).mean()

    assert spread(pvi.Decay(0.8, rate=1.0)) < 0.6 * spread(0.8)


def test_names_and_numbers():
    assert resolve_damping(0.3) == Constant(0.3)
    assert resolve_damping("auto") == Auto()
    assert resolve_damping(Decay(0.5)) == Decay(0.5)


@pytest.mark.parametrize("bad", [0, -0.5, 1.5, True, None, "fast"])
def test_bad_values(bad):
    with pytest.raises(ValueError, match=r"damping"):
        resolve_damping(bad)


def test_bad_rules():
    with pytest.raises(ValueError, match="Decay: initial"):
        Decay(0.0)
    with pytest.raises(ValueError, match="rate and power must be positive"):
        Decay(0.5, rate=0.0)
    with pytest.raises(ValueError, match=r"shrink must lie in \(0, 1\)"):
        Auto(shrink=1.0)


def test_a_search_does_not_shrink_from_a_start_without_a_value():
    """Counts under a very wide prior: F(q = p) is not finite, and any round is better."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    y = torch.poisson(torch.exp(1 + 0.5 * x[:, 0]), generator=generator)
    from functools import partial

    from pvi.models import poisson_regression

    model = partial(poisson_regression.model, prior_scale=1000.0)
    result = pvi.fit(model, [(x[:20], y[:20]), (x[20:], y[20:])], damping="auto", rounds=2)
    assert result.history[0].attempts == 1
    assert result.history[0].damping == 0.5


def test_a_rule_of_ones_own():
    class Halves:
        def at(self, round_index):
            return 0.5 ** (round_index + 1)

    result = pvi.fit("logistic_regression", sorted_clients(), damping=Halves(), rounds=2)
    assert [record.damping for record in result.history] == [0.5, 0.25]
