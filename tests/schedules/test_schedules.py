"""Every kind of schedule: stateless, in time, collecting only what it sent."""

import copy
import importlib
import pickle
import pkgutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules.kinds import CLIENTS, KINDS, collected, obeys, times

from pvi import schedules
from pvi.schedules import SCHEDULES, Limited, Sequential, SinglePass, resolve_schedule, rounds_limit

ROUNDS = 12


def classes():
    """Every public class of the package with a method ``events``, protocols aside."""
    for info in pkgutil.iter_modules(schedules.__path__, "pvi.schedules."):
        for name, found in vars(importlib.import_module(info.name)).items():
            public = isinstance(found, type) and found.__module__ == info.name and not name.startswith("_")
            is_schedule = public and hasattr(found, "events") and hasattr(found, "name")
            if is_schedule and not getattr(found, "_is_protocol", False):
                yield name, found


def test_every_class_is_tested_here_and_exported():
    found = dict(classes())
    assert {type(make()) for make in KINDS.values()} == set(found.values())
    assert set(found) <= set(schedules.__all__)
    for name in schedules.__all__:
        assert getattr(schedules, name) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_in_flight_is_collected(kind):
    schedule = KINDS[kind]()
    assert schedule.name
    obeys([list(schedule.events(CLIENTS, index)) for index in range(ROUNDS)], lambda index: present(kind, index))


def present(kind, index):
    away = KINDS[kind]().away if kind.startswith("dropouts") else {}
    return [name for name in CLIENTS if not any(start <= index < stop for start, stop in away.get(name, ()))]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(order=st.lists(st.integers(0, ROUNDS), min_size=1, max_size=6))
def test_a_round_depends_on_nothing_but_its_number(kind, order):
    used = KINDS[kind]()
    for index in order:
        fresh = list(KINDS[kind]().events(CLIENTS, index))
        assert list(used.events(CLIENTS, index)) == fresh
        assert list(used.events(CLIENTS, index)) == fresh
        turned = CLIENTS[::-1]
        assert list(used.events(turned, index)) == list(KINDS[kind]().events(turned, index))


@pytest.mark.parametrize("kind", KINDS)
def test_time_starts_at_zero_and_never_runs_back(kind):
    schedule = KINDS[kind]()
    rounds = [times(schedule.events(CLIENTS, index)) for index in range(ROUNDS)]
    running = [time for in_round in rounds for time in in_round]
    assert running[0] == 0
    assert running == sorted(running)
    assert all(isinstance(time, float) for time in running)


@pytest.mark.parametrize("kind", KINDS)
def test_schedules_are_values(kind):
    schedule = KINDS[kind]()
    before = repr(schedule)
    list(schedule.events(CLIENTS, 3))
    assert repr(schedule) == before
    for other in (KINDS[kind](), copy.deepcopy(schedule), pickle.loads(pickle.dumps(schedule))):
        assert other == schedule
        assert list(other.events(CLIENTS, 4)) == list(schedule.events(CLIENTS, 4))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_name_is_that_of_its_schedule(name):
    schedule = resolve_schedule(name)
    assert schedule.name == name
    assert sorted(collected(schedule.events(CLIENTS, 0))) == list(CLIENTS)


def test_resolve_keeps_objects_and_names_the_choices():
    own = Sequential()
    assert resolve_schedule(own) is own
    with pytest.raises(ValueError, match=r"unknown schedule 'sync'; there are synchronous, sequential"):
        resolve_schedule("sync")


def test_limits():
    class Own:
        name = "own"

        def events(self, clients, round_index):
            yield from ()

    class OwnLimited(Own):
        max_rounds = 3

    assert rounds_limit(Own()) is None
    assert rounds_limit(Sequential()) is None
    assert rounds_limit(OwnLimited()) == 3
    assert rounds_limit(SinglePass()) == 1
    assert rounds_limit(schedules.Dropouts(SinglePass(), away={})) == 1
    assert rounds_limit(schedules.Dropouts(Own(), away={})) is None
    assert isinstance(SinglePass(), Limited)


def test_a_user_need_not_know_of_time():
    assert schedules.Dispatch(("a",)).time == schedules.Collect(("a",)).time == 0.0
    assert schedules.Dispatch(("a",)) != schedules.Collect(("a",))
    match schedules.Collect(("a",), 2.0):
        case schedules.Collect(clients):
            assert clients == ("a",)
