"""Schedules: every client once a round, everything dispatched is collected."""

import pytest

from pvi.schedules import SCHEDULES, Collect, Dispatch, Sequential, Synchronous, resolve_schedule

CLIENTS = ("a", "b", "c")


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_round_visits_every_client_once_and_collects_what_it_sent(name):
    schedule = resolve_schedule(name)
    assert schedule.name == name
    for round_index in range(3):
        out, sent, back = set(), [], []
        for event in schedule.events(CLIENTS, round_index):
            if isinstance(event, Dispatch):
                assert not out.intersection(event.clients)
                out.update(event.clients)
                sent += event.clients
            else:
                assert isinstance(event, Collect)
                assert out.issuperset(event.clients)
                out.difference_update(event.clients)
                back += event.clients
        assert sorted(sent) == sorted(back) == list(CLIENTS)
        assert not out


def test_synchronous_sends_one_q_to_all():
    assert list(Synchronous().events(CLIENTS, 0)) == [Dispatch(CLIENTS), Collect(CLIENTS)]


def test_sequential_uses_each_update_before_the_next_client():
    events = list(Sequential().events(CLIENTS, 0))
    assert events == [kind((client,)) for client in CLIENTS for kind in (Dispatch, Collect)]


def test_resolve_keeps_objects_and_names_the_choices():
    own = Sequential()
    assert resolve_schedule(own) is own
    with pytest.raises(ValueError, match=r"unknown schedule 'sync'; there are synchronous, sequential"):
        resolve_schedule("sync")
