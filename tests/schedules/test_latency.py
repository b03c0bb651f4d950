"""Latencies by position, by name, for all; what does not fit is refused."""

import math

import numpy as np
import pytest
from schedules.kinds import CLIENTS, times

from pvi.schedules import Asynchronous, RandomSubset, Sequential, SinglePass, Synchronous

TAKE_LATENCY = [Synchronous, Sequential, SinglePass, Asynchronous, lambda latency: RandomSubset(2, latency=latency)]
every_schedule = pytest.mark.parametrize("make", TAKE_LATENCY)


@pytest.mark.parametrize(
    "latency",
    [(2.0, 3.0, 4.0), [2, 3, 4], np.array([2.0, 3.0, 4.0], dtype=np.float32), {"c": 4, "a": 2, "b": 3.0}],
)
def test_the_ways_to_say_it(latency):
    assert times(Sequential(latency=latency).events(CLIENTS, 0)) == [0, 2, 2, 5, 5, 9]


def test_one_for_all_and_one_second():
    assert times(Sequential(latency=2).events(CLIENTS, 0)) == [0, 2, 2, 4, 4, 6]
    assert times(Sequential().events(CLIENTS, 0)) == [0, 1, 1, 2, 2, 3]


def test_a_list_changed_later_changes_nothing():
    latency = [1.0, 2.0, 3.0]
    schedule = Synchronous(latency)
    latency[2] = 100.0
    assert times(schedule.events(CLIENTS, 0)) == [0, 3]


@every_schedule
def test_what_does_not_fit_the_clients(make):
    with pytest.raises(ValueError, match="latency: 2 numbers for 3 clients"):
        list(make(latency=[1.0, 2.0]).events(CLIENTS, 0))
    with pytest.raises(ValueError, match=r"latency: no clients \['z'\]; there are \['a', 'b', 'c'\]"):
        list(make(latency={"a": 1.0, "b": 1.0, "c": 1.0, "z": 1.0}).events(CLIENTS, 0))
    with pytest.raises(ValueError, match=r"latency: none for clients \['b', 'c'\]"):
        list(make(latency={"a": 1.0}).events(CLIENTS, 0))


@every_schedule
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_what_is_no_duration(make, value):
    with pytest.raises(ValueError, match="latency must be positive and finite"):
        make(latency=value)
    with pytest.raises(ValueError, match=r"latency of client 1 \(from 0\) must be positive and finite"):
        make(latency=[1.0, value, 1.0])
    with pytest.raises(ValueError, match="latency of client 'b' must be positive and finite"):
        make(latency={"a": 1.0, "b": value})


@pytest.mark.parametrize("value", ["1", object(), True, ["1"], [None]])
def test_what_is_no_number(value):
    with pytest.raises(TypeError, match=r"latency.* must be a number of seconds"):
        Synchronous(latency=value)
