"""All work, a few are asked."""

import pytest

from pvi.schedules import Collect, Dispatch, SubsetAfterTraining, is_synchronous

CLIENTS = ("a", "b", "c", "d")


def test_everybody_works_and_a_few_are_asked():
    schedule, counts = SubsetAfterTraining(2, seed=4), dict.fromkeys(CLIENTS, 0)
    for index in range(200):
        dispatch, collect = schedule.events(CLIENTS, index)
        assert isinstance(dispatch, Dispatch)
        assert isinstance(collect, Collect)
        assert dispatch.clients == collect.clients == CLIENTS
        assert collect.asked == tuple(name for name in CLIENTS if name in collect.asked)
        assert len(collect.asked) == 2
        for name in collect.asked:
            counts[name] += 1
    # Binomial with 200 draws at one half: five standard deviations are 35.
    assert all(abs(count - 100) < 35 for count in counts.values())
    assert not is_synchronous(schedule, CLIENTS, 0)


@pytest.mark.parametrize("size", [4, 10])
def test_all_of_them_where_there_are_no_more(size):
    schedule = SubsetAfterTraining(size)
    assert [event.asked for event in schedule.events(CLIENTS, 0) if isinstance(event, Collect)] == [None]
    assert is_synchronous(schedule, CLIENTS, 0)


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match="is a whole number of clients, at least 1"):
        SubsetAfterTraining(size)
