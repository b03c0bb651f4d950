"""One of each kind of schedule, user-written ones among them, and what every sequence of events must obey."""

from pvi.schedules import (
    Asynchronous,
    Collect,
    Dispatch,
    Dropouts,
    RandomSubset,
    Sequential,
    SinglePass,
    SubsetAfterTraining,
    Synchronous,
)

CLIENTS = ("a", "b", "c")
LATENCY = (0.1, 0.3, 1.0)

KINDS = {
    "synchronous": lambda: Synchronous(latency=LATENCY),
    "sequential": lambda: Sequential(latency=LATENCY),
    "shuffled": lambda: Sequential(order="shuffled", seed=3, latency=LATENCY),
    "asynchronous": lambda: Asynchronous(latency=LATENCY),
    "asynchronous, equal": Asynchronous,
    "asynchronous, jittered": lambda: Asynchronous(latency=LATENCY, jitter=0.7, seed=5),
    "random subset": lambda: RandomSubset(size=2, seed=1, latency=LATENCY),
    "subset after training": lambda: SubsetAfterTraining(size=2, seed=1, latency=LATENCY),
    "single pass": lambda: SinglePass(latency=LATENCY),
    "dropouts": lambda: Dropouts(Synchronous(latency=LATENCY), away={"b": [(1, 3)]}),
    "dropouts, asynchronous": lambda: Dropouts(Asynchronous(latency=LATENCY), away={"a": [(0, 1), (4, 6)]}),
}


class Late:
    """User-written: the first client is collected two rounds after it was sent q."""

    name = "late"

    def events(self, clients, round_index):
        first, *others = clients
        if round_index % 3 == 0:
            yield Dispatch((first,))
        yield Dispatch(tuple(others))
        yield Collect(tuple(others))
        if round_index % 3 == 2:
            yield Collect((first,))


class Plain:
    """A schedule that cannot play absences itself."""

    def __init__(self, schedule):
        self.schedule = schedule
        self.name = schedule.name

    def events(self, clients, round_index):
        return self.schedule.events(clients, round_index)


def times(events):
    return [event.time for event in events]


def collected(events):
    return [client for event in events if isinstance(event, Collect) for client in event.clients]


def obeys(rounds, present=lambda index: CLIENTS):
    """Nothing for the absent, a dispatch before every collection, updates lost when a client leaves."""
    flying = set()
    for index, events in enumerate(rounds):
        flying &= set(present(index))
        for event in events:
            assert event.clients
            assert len(set(event.clients)) == len(event.clients)
            assert set(event.clients) <= set(present(index))
            if isinstance(event, Dispatch):
                assert not flying & set(event.clients), "sent twice"
                flying |= set(event.clients)
            else:
                assert flying >= set(event.clients), "collected without q"
                flying -= set(event.clients)
