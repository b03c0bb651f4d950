"""Anderson acceleration: the algebra, that it stays federated, and its safeguards."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from datasets import breast_cancer, heart_disease
from oracles import global_vi
from toy_programs import F64, normal

import pvi
from pvi.acceleration import Visit, coefficients, inner_products, mixed
from pvi.factors import Factor
from pvi.families import DiagonalGaussian


def tensors(clients):
    return {name: (torch.as_tensor(x), torch.as_tensor(y)) for name, (x, y) in clients.items()}


def sorted_clients():
    x = normal(120, 3, seed=1)
    chance = torch.sigmoid(x @ torch.tensor([2.0, -1.0, 0.0], dtype=F64))
    y = (torch.rand(120, generator=torch.Generator().manual_seed(0), dtype=F64) < chance).to(F64)
    return [(x[rows], y[rows]) for rows in x[:, 0].argsort().split(30)]


def test_the_coefficients_make_the_mixed_change_shortest():
    residuals = normal(4, 10, seed=3)
    alpha = coefficients(residuals @ residuals.mT)
    assert alpha.sum().item() == pytest.approx(1.0)
    shortest = (alpha @ residuals).norm()
    for direction in normal(20, 4, seed=4):
        other = alpha + 0.1 * (direction - direction.mean())
        assert (other @ residuals).norm() > shortest
    lengths = torch.diag(torch.tensor([1.0, 1e-4, 1e-8, 1e-12], dtype=F64))  # rounds of very different lengths
    scaled = lengths @ residuals
    alpha = coefficients(scaled @ scaled.mT)
    assert (alpha @ scaled).norm() <= 1.001 * scaled[3].norm()


def test_equal_rounds_are_no_division_by_zero():
    alpha = coefficients(torch.ones(3, 3, dtype=F64))
    assert alpha.sum().item() == pytest.approx(1.0)
    assert bool(torch.isfinite(alpha).all())
    assert bool(torch.isfinite(coefficients(torch.zeros(2, 2, dtype=F64))).all())


def test_sums_of_clients_products_are_the_products_of_all():
    """What the server sees is what it would have computed from all factors at once."""
    family = DiagonalGaussian(2)
    natural = family.natural_from_standard(loc=torch.tensor([0.5, -1.0]), scale=torch.tensor([0.3, 2.0])).to(F64)
    fisher = torch.func.jacrev(family.mean_parameters)(natural)
    clients = [[Visit(factor(family, 2 * k + r), factor(family, 50 + 2 * k + r)) for r in range(3)] for k in range(4)]
    total = sum(inner_products(past, family, natural) for past in clients)
    stacked = torch.stack([torch.cat([past[r].delta.natural for past in clients]) for r in range(3)])
    whole = torch.block_diag(*[fisher] * 4)
    torch.testing.assert_close(total, stacked @ whole @ stacked.mT)


def test_mixtures_of_clients_sum_to_the_mixture_of_the_sums():
    family = DiagonalGaussian(2)
    alpha = torch.tensor([0.2, 1.5, -0.7], dtype=F64)
    clients = [[Visit(factor(family, 3 * k + r), factor(family, 20 + 3 * k + r)) for r in range(3)] for k in range(4)]
    parts = sum(mixed(past, alpha).natural for past in clients)
    totals = [sum(past[r].factor.natural + past[r].delta.natural for past in clients) for r in range(3)]
    torch.testing.assert_close(parts, sum(a * t for a, t in zip(alpha, totals, strict=True)))


def factor(family, seed):
    return Factor(family, normal(family.num_natural, seed=seed), torch.zeros((), dtype=F64))


def test_it_converges_far_faster_to_the_same_optimum():
    clients = sorted_clients()
    design = np.c_[torch.cat([x for x, _ in clients]).numpy(), np.ones(120)]
    best = global_vi(design, torch.cat([y for _, y in clients]).numpy())
    plain = pvi.fit("logistic_regression", clients, damping=0.5, rounds=15)
    fast = pvi.fit("logistic_regression", clients, damping=0.5, rounds=15, acceleration="anderson")
    assert best.elbo - fast.elbo < 1e-8
    assert best.elbo - fast.elbo < 1e-4 * (best.elbo - plain.elbo)
    np.testing.assert_allclose(fast.posterior.mean["weights"].numpy(), best.mean[:3], atol=1e-5)
    assert fast.history[-1].drift < 1e-9
    assert fast.settings["acceleration"] == "anderson"
    assert [len(record.mixing) for record in fast.history[:8]] == [0, 2, 3, 4, 5, 6, 6, 6]


@pytest.mark.parametrize("damping", [0.2, 1.0])
def test_rounds_that_lower_the_free_energy_fall_back_to_the_damped_step(damping):
    """Breast cancer diverges undamped: the accelerated run takes what plain rounds offer, and never less on purpose."""
    result = pvi.fit(
        "logistic_regression", tensors(breast_cancer()), damping=damping, rounds=12, acceleration=pvi.Anderson(memory=3)
    )
    for before, after in pairwise(result.history):
        if after.mixing:
            assert after.elbo >= before.elbo - 1e-6
    assert all(len(record.mixing) <= 4 for record in result.history)
    assert result.history[-1].drift < 1e-8


def test_q_stays_proper_on_heart_disease():
    clients = tensors(heart_disease())
    best = pvi.fit("logistic_regression", clients, algorithm="global-vi")
    result = pvi.fit("logistic_regression", clients, damping=0.5, rounds=20, acceleration="anderson")
    assert best.elbo - result.elbo < 1e-4
    factors = list(result.factors.values())
    assert any(not factor.is_proper for factor in factors)  # improper factors are part of the run


def test_it_goes_with_searched_damping():
    result = pvi.fit("logistic_regression", sorted_clients(), damping="auto", rounds=12, acceleration="anderson")
    elbos = [record.elbo for record in result.history]
    assert all(after >= before - 1e-4 for before, after in pairwise(elbos))


def test_a_rejected_update_is_no_residual():
    """A solver that fails at one client: the others' plain steps are taken, nothing is mixed."""
    from pvi.solvers import Newton

    class Fails:
        name = "fails"

        def solve(self, problem, cavity, start, seed):
            natural, info = Newton().solve(problem, cavity, start, seed)
            return (natural * float("nan") if problem.client == "client 1" else natural), info

    result = pvi.fit(
        "logistic_regression", sorted_clients(), damping=0.5, rounds=4, acceleration="anderson", solver=Fails()
    )
    assert all(not record.mixing for record in result.history)
    assert set(result.history[-1].rejected) == {"client 1"}
    assert result.history[-1].drift < 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acceleration": "nesterov"}, "unknown acceleration 'nesterov'"),
        ({"acceleration": "anderson", "schedule": "sequential"}, "needs a synchronous schedule, got 'sequential'"),
        ({"acceleration": "anderson", "schedule": pvi.schedules.RandomSubset(size=2)}, "needs a synchronous schedule"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(ValueError, match=message):
        pvi.fit("logistic_regression", sorted_clients(), rounds=2, **options)


def test_memory_is_a_whole_number():
    with pytest.raises(ValueError, match="memory must be a whole number"):
        pvi.Anderson(memory=0)


def test_a_lost_round_is_no_fixed_point():
    """Every update of one round is rejected: the next rounds go on as if it had not been."""
    from pvi.solvers import Newton

    class FailsOnce:
        name = "fails once"

        def solve(self, problem, cavity, start, seed):
            natural, info = Newton().solve(problem, cavity, start, seed)
            return (natural * float("nan") if seed % 1_000_003 == 2 else natural), info

    clients = sorted_clients()
    best = pvi.fit("logistic_regression", clients, algorithm="global-vi").elbo
    result = pvi.fit(
        "logistic_regression", clients, damping=0.5, rounds=14, acceleration="anderson", solver=FailsOnce()
    )
    assert [record.number for record in result.history if record.rejected] == [3]
    assert best - result.elbo < 1e-6


def test_rounds_in_which_somebody_is_away_are_plain():
    schedule = pvi.schedules.Dropouts(pvi.schedules.Synchronous(), away={"client 0": [(2, 4)]})
    options = {"damping": 0.5, "rounds": 7, "acceleration": "anderson"}
    result = pvi.fit("logistic_regression", sorted_clients(), schedule=schedule, **options)
    assert [set(record.clients) == {"client 1", "client 2", "client 3"} for record in result.history] == [
        False, False, True, True, False, False, False,
    ]  # fmt: skip
    assert [bool(record.mixing) for record in result.history] == [False, True, False, False, False, True, True]


def test_algorithms_of_one_round_have_nothing_to_mix():
    with pytest.raises(ValueError, match="acceleration mixes rounds, but algorithm 'bcm-same' makes one"):
        pvi.fit("logistic_regression", sorted_clients(), algorithm="bcm-same", acceleration="anderson")
