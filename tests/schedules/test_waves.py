"""Synchronous, sequential, single-pass and random-subset rounds."""

from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules.kinds import CLIENTS, LATENCY, collected, times

from pvi.schedules import Collect, Dispatch, RandomSubset, Sequential, SinglePass, Synchronous

LATENCIES = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3)


def test_synchronous_sends_one_q_to_all():
    assert list(Synchronous().events(CLIENTS, 0)) == [Dispatch(CLIENTS, 0.0), Collect(CLIENTS, 1.0)]


def test_sequential_uses_each_update_before_the_next_client():
    events = list(Sequential().events(CLIENTS, 1))
    assert events == [
        kind((client,), 3.0 + index + (kind is Collect))
        for index, client in enumerate(CLIENTS)
        for kind in (Dispatch, Collect)
    ]


@given(latency=LATENCIES, index=st.integers(0, 50))
def test_a_synchronous_round_waits_for_the_slowest(latency, index):
    start, end = times(Synchronous(latency).events(CLIENTS, index))
    assert start == pytest.approx(index * max(latency), rel=1e-12)
    assert end == pytest.approx((index + 1) * max(latency), rel=1e-12)


@given(latency=LATENCIES, index=st.integers(0, 50), order=st.sampled_from(["cyclic", "shuffled"]))
def test_a_sequential_round_takes_the_sum(latency, index, order):
    schedule = Sequential(order, latency=latency)
    events, later = list(schedule.events(CLIENTS, index)), list(schedule.events(CLIENTS, index + 1))
    assert events[0].time == pytest.approx(index * sum(latency), rel=1e-12)
    assert events[-1].time == later[0].time
    for sent, back in zip(events[::2], events[1::2], strict=True):
        assert sent.clients == back.clients
        seconds = latency[CLIENTS.index(sent.clients[0])]
        assert back.time - sent.time == pytest.approx(seconds, abs=1e-12 * back.time)


def test_decimals_add_up_as_written():
    assert times(Synchronous(latency=0.1).events(CLIENTS, 9)) == [0.9, 1.0]
    assert times(Sequential(latency=0.1).events(CLIENTS, 0)) == [0.0, 0.1, 0.1, 0.2, 0.2, 0.3]


def test_shuffled_rounds_are_permutations_without_a_favourite():
    rounds, names = 3000, tuple("abcd")
    schedule = Sequential(order="shuffled", seed=11)
    orders = [tuple(collected(schedule.events(names, index))) for index in range(rounds)]
    assert all(sorted(order) == list(names) for order in orders)
    counts = Counter(orders)
    assert len(counts) == 24
    share = 1 / 24
    error = (rounds * share * (1 - share)) ** 0.5
    assert all(abs(count - rounds * share) < 5 * error for count in counts.values())
    repeats = sum(one == two for one, two in pairwise(orders))
    assert abs(repeats - rounds * share) < 5 * error
    assert orders[:20] != [tuple(collected(Sequential(order="shuffled", seed=12).events(names, i))) for i in range(20)]


def test_every_subset_is_as_likely():
    rounds, names = 3000, tuple("abcde")
    schedule = RandomSubset(size=2, seed=4)
    drawn = Counter(tuple(collected(schedule.events(names, index))) for index in range(rounds))
    assert set(drawn) == set(combinations(names, 2))
    error = (rounds * 0.1 * 0.9) ** 0.5
    assert all(abs(count - rounds * 0.1) < 5 * error for count in drawn.values())


def test_a_subset_waits_for_its_slowest_only():
    schedule = RandomSubset(size=2, latency=dict(zip(CLIENTS, LATENCY, strict=True)))
    now = 0.0
    for index in range(20):
        sent, back = schedule.events(CLIENTS, index)
        assert sent.clients == back.clients
        assert len(sent.clients) == 2
        assert sent.time == pytest.approx(now, abs=1e-9)
        now += max(LATENCY[CLIENTS.index(client)] for client in sent.clients)
        assert back.time == pytest.approx(now, abs=1e-9)


def test_a_subset_of_all_is_synchronous():
    for index in range(4):
        whole = RandomSubset(size=3, latency=LATENCY).events(CLIENTS, index)
        assert list(whole) == list(Synchronous(LATENCY).events(CLIENTS, index))


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="size must be a whole number of clients, at least 1"):
        RandomSubset(size=size)


def test_a_subset_larger_than_the_set():
    with pytest.raises(ValueError, match="subset of 4 clients: there are only 3"):
        RandomSubset(size=4).events(CLIENTS, 0)


def test_a_single_pass_is_the_first_sequential_round():
    schedule = SinglePass(latency=LATENCY)
    assert list(schedule.events(CLIENTS, 0)) == list(Sequential(latency=LATENCY).events(CLIENTS, 0))
    assert [list(schedule.events(CLIENTS, index)) for index in (1, 2)] == [[], []]
    assert schedule.max_rounds == 1


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_seeds_that_are_none(seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        RandomSubset(size=1, seed=seed)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Sequential(seed=seed)


def test_an_unknown_order():
    with pytest.raises(ValueError, match="order must be 'cyclic' or 'shuffled', got 'random'"):
        Sequential(order="random")
