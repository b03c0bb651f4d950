"""η_q = η_p + Σ η_m after every round, whatever happened in it.

Stale updates, absences, rejected and shortened updates, mixtures of rounds: the deltas that the server added are those
by which the factors moved. Improper factors and improper cavities are part of ordinary runs here.
"""

from dataclasses import dataclass, field

import pytest
import torch
from laws.federations import MODELS, begin, play, regression
from laws.test_shortened_steps import heavy_tailed, two_sided

from pvi.factors import cavity
from pvi.play import play_round
from pvi.schedules import Asynchronous, Dropouts, RandomSubset, Sequential, Synchronous
from pvi.solvers import Newton, SolverInfo

LATENCY = [1.0, 0.3, 2.0, 0.7]
AWAY = {"client 1": [(1, 3)], "client 2": [(0, 1), (4, 5)]}
WAYS = {
    "synchronous": {"damping": 0.4},
    "sequential": {"schedule": "sequential", "damping": 1.0},
    "shuffled": {"schedule": Sequential(order="shuffled", seed=4), "damping": 0.7},
    "asynchronous": {"schedule": Asynchronous(latency=LATENCY, jitter=0.4, seed=1), "damping": 0.6},
    "random subset": {"schedule": RandomSubset(size=2, seed=1), "damping": 0.7},
    "dropouts": {"schedule": Dropouts(Synchronous(), AWAY), "damping": 0.5},
    "dropouts, asynchronous": {"schedule": Dropouts(Asynchronous(latency=LATENCY), AWAY), "damping": 0.6},
    "Anderson": {"damping": 0.5, "acceleration": "anderson"},
    "searched damping": {"damping": "auto"},
    "streaming VB": {"algorithm": "streaming-vb"},
}


def adds_up(state):
    """The law, recomputed from the prior and the clients' factors."""
    q = state.server.posterior
    total = state.server.prior.natural.clone()
    for client in state.clients.values():
        total += client.factor.natural
    tolerance = 1e-12 * sum(client.factor.natural.abs().max().item() + 1 for client in state.clients.values())
    distance = (q.natural - total).abs().max().item()
    assert distance <= 100 * tolerance
    assert state.history[-1].drift == pytest.approx(distance, abs=tolerance)
    assert bool(q.family.is_proper(q.natural))


@pytest.mark.parametrize("guide", [None, "full"])
@pytest.mark.parametrize("way", WAYS)
def test_after_every_round(way, guide):
    moved = 0.0
    for state in play(MODELS["bernoulli"], regression("bernoulli"), 6, guide=guide, **WAYS[way]):
        adds_up(state)
        moved += state.history[-1].max_delta
    assert moved > 0.1
    if way.endswith("asynchronous"):
        assert any(record.max_staleness > 0 for record in state.history)
    if way == "Anderson":
        assert any(min(record.mixing, default=0.0) < 0 for record in state.history)


def held_together():
    """Five two-sided clients, whose factors are improper, and a client that knows the location and holds q together."""
    sure = torch.linspace(-0.4, 0.4, 8, dtype=torch.float64)
    return [(sure,), *two_sided(5, shift=0.0, half=3.0)]


@pytest.mark.parametrize("way", ["synchronous", "sequential", "asynchronous", "Anderson", "searched damping"])
def test_with_improper_factors_and_cavities(way):
    options = dict(WAYS[way])
    if way == "asynchronous":
        options["schedule"] = Asynchronous(latency=[0.5, 1.0, 0.7, 2.0, 0.9, 1.3])
    improper_factors, improper_cavities = 0, 0
    for state in play(heavy_tailed, held_together(), 8, **options):
        adds_up(state)
        for client in state.clients.values():
            improper_factors += not client.factor.is_proper
            improper_cavities += not cavity(state.server.posterior, client.factor).is_proper
    assert improper_factors > 0
    assert improper_cavities > 0


def test_with_shortened_steps():
    fractions = []
    for state in play(heavy_tailed, two_sided(), 6, damping=1.0):
        adds_up(state)
        fractions.append(state.history[-1].step_fraction)
    assert min(fractions) < 1


@dataclass(frozen=True)
class Flaky:
    """Newton, except that some visits of one client end in what no server can use."""

    client: str
    answers: dict[int, str] = field(default_factory=dict)
    name: str = "flaky"

    def solve(self, problem, cavity, start, seed):
        visit = seed % 1_000_003
        kind = self.answers.get(visit, "") if problem.client == self.client else ""
        natural, info = Newton().solve(problem, cavity, start, seed)
        if kind == "broken":
            torch.linalg.cholesky(-torch.eye(2))
        if kind == "nan":
            return natural * float("nan"), SolverInfo(0, float("nan"), False, "nothing")
        if kind == "improper":
            return -natural, SolverInfo(0, float("nan"), False, "nothing")
        return natural, info


@pytest.mark.parametrize("way", ["synchronous", "sequential", "asynchronous", "Anderson"])
def test_with_rejected_updates(way):
    """The factor stays where it was, the others' changes are applied, and the run goes on."""
    solver = Flaky("client 1", {0: "nan", 2: "improper", 3: "broken"})
    options = dict(WAYS[way])
    if way == "asynchronous":  # heard once a round at most: a round's record has room for one visit a client
        options["schedule"] = Asynchronous(latency=[1.0, 2.0, 0.7, 1.1])
    plan, state = begin(MODELS["bernoulli"], regression("bernoulli"), 10, solver=solver, **options)
    rejected = []
    for _ in range(10):
        before, state = state, play_round(plan, state)
        adds_up(state)
        said = state.history[-1].rejected
        rejected += said.values()
        assert set(said) <= {"client 1"}
        if said:
            after, old = state.clients["client 1"].factor, before.clients["client 1"].factor
            assert torch.equal(after.natural, old.natural)
            assert torch.equal(after.log_scale, old.log_scale)
            assert state.history[-1].max_delta > 0
    assert len(rejected) == 3
    assert len(set(rejected)) == 3
    assert not said
