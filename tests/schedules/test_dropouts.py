"""Absences: nothing for the absent, nothing collected that was not sent since the return."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules.kinds import CLIENTS, KINDS, LATENCY, Late, Plain, collected, obeys, times

from pvi.schedules import Asynchronous, Collect, Dispatch, Dropouts, RandomSubset, Sequential, SinglePass, Synchronous

ROUNDS = 14
WRAPPED = {
    **{kind: make for kind, make in KINDS.items() if not kind.startswith("dropouts")},
    "late": Late,
    "plain asynchronous": lambda: Plain(Asynchronous(latency=LATENCY)),
    "plain subsets": lambda: Plain(RandomSubset(size=2, latency=LATENCY)),
}


@st.composite
def absences(draw):
    """For some clients, intervals between sorted rounds; they may touch."""
    away = {}
    for name in draw(st.sets(st.sampled_from(CLIENTS))):
        edges = sorted(draw(st.sets(st.integers(0, ROUNDS), min_size=2, max_size=6)))
        away[name] = list(zip(edges[::2], edges[1::2], strict=False))
    return away


def present(away):
    return lambda index: [
        name for name in CLIENTS if not any(start <= index < stop for start, stop in away.get(name, ()))
    ]


def play(schedule, rounds=ROUNDS):
    return [list(schedule.events(CLIENTS, index)) for index in range(rounds)]


@pytest.mark.parametrize("kind", WRAPPED)
@settings(max_examples=25)
@given(away=absences())
def test_no_collection_without_a_dispatch_since_the_return(kind, away):
    rounds = play(Dropouts(WRAPPED[kind](), away))
    obeys(rounds, present(away))
    running = [time for events in rounds for time in times(events)]
    if kind != "late":
        assert running == sorted(running)


@pytest.mark.parametrize("kind", WRAPPED)
@settings(max_examples=25)
@given(away=absences(), order=st.lists(st.integers(0, ROUNDS), min_size=1, max_size=5))
def test_stateless(kind, away, order):
    used = Dropouts(WRAPPED[kind](), away)
    for index in order:
        assert list(used.events(CLIENTS, index)) == list(Dropouts(WRAPPED[kind](), away).events(CLIENTS, index))


@pytest.mark.parametrize("kind", WRAPPED)
def test_without_absences_nothing_changes(kind):
    assert play(Dropouts(WRAPPED[kind](), {})) == play(WRAPPED[kind]())
    assert play(Dropouts(WRAPPED[kind](), {"a": [(ROUNDS, ROUNDS + 1)]})) == play(WRAPPED[kind]())


@pytest.mark.parametrize("kind", ["synchronous", "sequential", "shuffled", "single pass"])
@given(away=absences())
def test_playing_absences_and_taking_them_out_agree_but_for_time(kind, away):
    played, taken_out = Dropouts(WRAPPED[kind](), away), Dropouts(Plain(WRAPPED[kind]()), away)
    for one, other in zip(play(played), play(taken_out), strict=True):
        assert [(type(e), e.clients) for e in one] == [(type(e), e.clients) for e in other]


@given(away=absences())
def test_nobody_waits_for_the_absent(away):
    now = 0.0
    for index, events in enumerate(play(Dropouts(Synchronous(LATENCY), away))):
        there = tuple(present(away)(index))
        if not there:
            assert events == []
            continue
        assert [e.clients for e in events] == [there, there]
        assert events[0].time == pytest.approx(now)
        now += max(LATENCY[CLIENTS.index(name)] for name in there)
        assert events[1].time == pytest.approx(now)


@given(away=absences())
def test_an_asynchronous_round_has_an_arrival_per_client_present(away):
    rounds = play(Dropouts(Asynchronous(LATENCY, jitter=0.2), away))
    before = set()
    for index, events in enumerate(rounds):
        there = present(away)(index)
        assert len(collected(events)) == len(there)
        returning = [name for name in there if name not in before]
        if returning:
            assert isinstance(events[0], Dispatch)
            assert list(events[0].clients) == returning
        before = set(there)


def test_an_asynchronous_client_takes_its_latency_after_its_return():
    away = Dropouts(Asynchronous(latency=[1.0, 1.0, 10.0]), away={"c": [(2, 5)]})
    rounds = play(away, 12)
    back = next(event for event in rounds[5])
    assert back == Dispatch(("c",), times(rounds[4])[-1])
    first = next(
        event for events in rounds[5:] for event in events if isinstance(event, Collect) and "c" in event.clients
    )
    assert first.time == back.time + 10.0


def test_a_schedule_of_ones_own_waits_for_its_own_dispatch():
    """Away in rounds 2 and 3: sent in round 3 in vain, so not collected in round 5; next sent in round 6."""
    rounds = play(Dropouts(Late(), away={"a": [(2, 4)]}), 9)
    of_a = [(index, type(e)) for index, events in enumerate(rounds) for e in events if "a" in e.clients]
    assert of_a == [(0, Dispatch), (6, Dispatch), (8, Collect)]


def test_subsets_are_drawn_among_those_present():
    away = {"b": [(0, 40)]}
    rounds = play(Dropouts(RandomSubset(size=2), away), 40)
    assert all(collected(events) == ["a", "c"] for events in rounds)
    alone = play(Dropouts(RandomSubset(size=2), {"b": [(0, 9)], "c": [(0, 9)]}), 9)
    assert all(collected(events) == ["a"] for events in alone)


def test_an_absence_changes_no_draw_that_it_does_not_concern():
    whole = play(RandomSubset(size=1, seed=3), 40)
    some = play(Dropouts(RandomSubset(size=1, seed=3), {"b": [(0, 40)]}), 40)
    for one, other in zip(whole, some, strict=True):
        assert collected(one) == ["b"] or collected(one) == collected(other)


def test_a_shuffled_round_keeps_its_order():
    whole = play(Sequential("shuffled", seed=3))
    some = play(Dropouts(Sequential("shuffled", seed=3), {"b": [(0, ROUNDS)]}))
    for one, other in zip(whole, some, strict=True):
        assert [name for name in collected(one) if name != "b"] == collected(other)


def test_a_single_pass_does_not_wait():
    rounds = play(Dropouts(SinglePass(), {"b": [(0, 1)]}), 3)
    assert [collected(events) for events in rounds] == [["a", "c"], [], []]


@pytest.mark.parametrize("kind", WRAPPED)
@settings(max_examples=25)
@given(one=absences(), other=absences())
def test_dropouts_of_dropouts(kind, one, other):
    both = Dropouts(Dropouts(WRAPPED[kind](), one), other)
    obeys(play(both), lambda index: [name for name in present(one)(index) if name in present(other)(index)])


@pytest.mark.parametrize("kind", WRAPPED)
def test_nobody_there(kind):
    rounds = play(Dropouts(WRAPPED[kind](), {name: [(1, 3)] for name in CLIENTS}), 4)
    assert rounds[1] == rounds[2] == []
    assert rounds[0]


def test_random_absences_have_their_probability():
    rounds, names = 2000, tuple("abcd")
    schedule = Dropouts.random(Synchronous(), names, rounds=rounds, probability=0.3, seed=1)
    there = np.array([[name in collected(schedule.events(names, index)) for name in names] for index in range(rounds)])
    error = (0.3 * 0.7 / rounds) ** 0.5
    assert (np.abs(1 - there.mean(axis=0) - 0.3) < 5 * error).all()
    together = (~there[:, :1] & ~there[:, 1:]).mean(axis=0)
    assert (np.abs(together - 0.09) < 5 * (0.09 * 0.91 / rounds) ** 0.5).all()
    again = (~there[1:] & ~there[:-1]).mean()
    assert abs(again - 0.09) < 5 * (0.09 * 0.91 / rounds / 2) ** 0.5
    assert collected(schedule.events(names, rounds)) == list(names)
    assert schedule == Dropouts.random(Synchronous(), names, rounds=rounds, probability=0.3, seed=1)
    assert schedule != Dropouts.random(Synchronous(), names, rounds=rounds, probability=0.3, seed=2)


def test_random_absences_at_the_edges():
    assert Dropouts.random(Synchronous(), CLIENTS, rounds=5, probability=0.0).away == {}
    assert Dropouts.random(Synchronous(), CLIENTS, rounds=5, probability=1.0).away == dict.fromkeys(CLIENTS, ((0, 5),))


def test_what_cannot_be_an_absence():
    for interval in [(3, 3), (4, 2), (-1, 2), (0.0, 2)]:
        with pytest.raises(ValueError, match=r"dropouts of client 'a': .* needs whole numbers 0 <= start < stop"):
            Dropouts(Synchronous(), {"a": [interval]})
    with pytest.raises(ValueError, match=r"client 'a': the intervals \(1, 4\) and \(3, 6\) overlap"):
        Dropouts(Synchronous(), {"a": [(3, 6), (1, 4)]})
    with pytest.raises(ValueError, match=r"dropouts: no clients \['z'\]; there are \['a', 'b', 'c'\]"):
        Dropouts(Synchronous(), {"z": [(1, 4)]}).events(CLIENTS, 0)
    with pytest.raises(ValueError, match="probability must lie in"):
        Dropouts.random(Synchronous(), CLIENTS, rounds=5, probability=1.5)
    with pytest.raises(ValueError, match="rounds must be a whole number"):
        Dropouts.random(Synchronous(), CLIENTS, rounds=0, probability=0.5)


def test_a_collection_that_no_absence_explains_is_left_for_the_run_to_refuse():
    class Hasty:
        name = "hasty"

        def events(self, clients, round_index):
            yield Collect(tuple(clients))

    assert play(Dropouts(Hasty(), {"a": [(0, 1)]}), 2) == [[Collect(("b", "c"))], [Collect(("b", "c"))]]
