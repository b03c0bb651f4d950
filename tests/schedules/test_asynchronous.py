"""The simulation against arrival times in closed form, and its random durations against their distribution."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedules.kinds import CLIENTS, collected, times

from pvi.schedules import Asynchronous, Collect, Dispatch, Synchronous


def play(schedule, clients, rounds):
    return [list(schedule.events(clients, index)) for index in range(rounds)]


@given(latency=st.lists(st.integers(1, 30), min_size=1, max_size=5), rounds=st.integers(1, 8))
def test_arrivals_are_the_multiples_of_the_latencies_in_order(latency, rounds):
    clients = tuple(f"client {index}" for index in range(len(latency)))
    number = rounds * len(latency)
    expected = sorted(
        (visit * Fraction(seconds, 10), index)
        for index, seconds in enumerate(latency)
        for visit in range(1, number + 1)
    )[:number]
    schedule = Asynchronous(latency=[seconds / 10 for seconds in latency])
    events = play(schedule, clients, rounds)
    arrivals = [(event.time, name) for in_round in events for event in in_round if isinstance(event, Collect)
                for name in event.clients]  # fmt: skip
    assert arrivals == [(float(time), clients[index]) for time, index in expected]
    assert all(len(collected(in_round)) == len(clients) for in_round in events)


def test_ten_times_slower_arrives_a_tenth_as_often():
    counts = Counter(
        name for events in play(Asynchronous(latency=[1.0, 1.0, 10.0]), CLIENTS, 70) for name in collected(events)
    )
    assert counts == {"a": 100, "b": 100, "c": 10}


def test_a_client_is_sent_the_newest_q_when_it_arrives():
    first, second = play(Asynchronous(latency=[1.0, 1.5, 4.0]), CLIENTS, 2)
    assert first == [
        Dispatch(CLIENTS, 0.0),
        Collect(("a",), 1.0),
        Dispatch(("a",), 1.0),
        Collect(("b",), 1.5),
        Dispatch(("b",), 1.5),
        Collect(("a",), 2.0),
        Dispatch(("a",), 2.0),
    ]
    assert second == [
        Collect(("a", "b"), 3.0),
        Dispatch(("a", "b"), 3.0),
        Collect(("a",), 4.0),
        Dispatch(("a",), 4.0),
    ]


def test_arrivals_beyond_the_round_open_the_next():
    rounds = play(Asynchronous(latency=[1.0, 1.0, 2.0]), CLIENTS, 3)
    assert [(e.clients, e.time) for events in rounds for e in events if isinstance(e, Collect)] == [
        (("a", "b"), 1.0),
        (("a",), 2.0),
        (("b", "c"), 2.0),
        (("a",), 3.0),
        (("b",), 3.0),
        (("a", "b"), 4.0),
    ]
    assert times(rounds[1])[0] == times(rounds[0])[-1] == 2.0


def test_times_meant_to_be_equal_are():
    """In floating point 0.1 + 0.1 + 0.1 is not 0.3."""
    events = play(Asynchronous(latency=[0.1, 0.3]), ("a", "b"), 2)
    assert Collect(("a", "b"), 0.3) in events[1]


def test_equal_latencies_are_synchronous():
    for index in range(4):
        asynchronous = [e for e in Asynchronous().events(CLIENTS, index) if isinstance(e, Collect)]
        assert asynchronous == [e for e in Synchronous().events(CLIENTS, index) if isinstance(e, Collect)]


def durations(schedule, clients, rounds):
    """Each client's durations, visit by visit."""
    left, found = {}, {name: [] for name in clients}
    for events in play(schedule, clients, rounds):
        for event in events:
            for name in event.clients:
                if isinstance(event, Dispatch):
                    left[name] = event.time
                else:
                    found[name].append(event.time - left.pop(name))
    return {name: np.array(values) for name, values in found.items()}


def test_jitter_has_mean_one_and_its_standard_deviation():
    sd, latency = 0.5, {"a": 1.0, "b": 3.0}
    found = durations(Asynchronous(latency=latency, jitter=sd, seed=2), ("a", "b"), 1500)
    for name, values in found.items():
        factors, number = values / latency[name], len(values)
        assert number > 500
        assert abs(factors.mean() - 1) < 5 * factors.std(ddof=1) / number**0.5
        logs = np.log(factors)
        assert abs(logs.mean() + sd**2 / 2) < 5 * sd / number**0.5
        assert abs(logs.std(ddof=1) - sd) < 5 * sd / (2 * number) ** 0.5
        assert abs(np.corrcoef(logs[:-1], logs[1:])[0, 1]) < 5 / number**0.5
    both = min(map(len, found.values()))
    assert abs(np.corrcoef(found["a"][:both], found["b"][:both])[0, 1]) < 5 / both**0.5


def test_jitter_comes_from_the_seed():
    one, same, other = (play(Asynchronous(jitter=0.3, seed=seed), CLIENTS, 3) for seed in (0, 0, 1))
    assert one == same
    assert one != other


def test_a_latency_changes_no_other_clients_durations():
    slow = durations(Asynchronous(latency=[1.0, 1.0, 9.0], jitter=0.4), CLIENTS, 30)
    fast = durations(Asynchronous(latency=[1.0, 1.0, 0.5], jitter=0.4), CLIENTS, 30)
    for name in "ab":
        both = min(len(slow[name]), len(fast[name]))
        assert both > 10
        assert slow[name][:both] == pytest.approx(fast[name][:both])


@pytest.mark.parametrize("jitter", [-0.1, float("nan"), float("inf"), "0.5", None])
def test_jitters_that_are_none(jitter):
    with pytest.raises(ValueError, match="jitter must be finite and at least 0"):
        Asynchronous(jitter=jitter)
