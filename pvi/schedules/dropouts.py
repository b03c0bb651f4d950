"""Clients that are away for some rounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pvi.schedules.attendance import Attendance, Interruptible, Interval
from pvi.schedules.draws import check_seed
from pvi.schedules.protocol import Dispatch, Event, Schedule, rounds_limit


@dataclass(frozen=True)
class Dropouts:
    """Any schedule, with clients away in rounds start <= r < stop, counted from 0.

    Who is away gets nothing and returns nothing; an update in flight is lost. Who comes back is sent the newest q
    before it is collected. The schedules of this package play among those present: nobody waits for the others, random
    subsets are drawn among those present, an asynchronous round counts as many arrivals as clients are present and
    starts with a dispatch to those who return. From the events of any other schedule those of absent clients are
    taken out, and for a client that has returned all collections until the schedule sends it q; its times stay. A round
    without clients has no events and takes no time.

    Raises ``ValueError`` for intervals that are empty or overlap and, when events are asked for, for unknown clients.

    >>> from pvi.schedules import Synchronous
    >>> list(Dropouts(Synchronous(), away={"a": [(0, 2)]}).events(("a", "b"), 1))
    [Dispatch(clients=('b',), time=1.0), Collect(clients=('b',), time=2.0)]
    """

    schedule: Schedule
    away: Mapping[str, Sequence[Interval]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "away", {name: _checked(name, spans) for name, spans in self.away.items()})

    @classmethod
    def random(
        cls, schedule: Schedule, clients: Sequence[str], rounds: int, probability: float, seed: int = 0
    ) -> "Dropouts":
        """Each client is away from each of the first ``rounds`` rounds with the same probability, independently."""
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {probability!r}")
        if not isinstance(rounds, int) or rounds < 1:
            raise ValueError(f"rounds must be a whole number, at least 1, got {rounds!r}")
        check_seed(seed)
        drawn = np.random.default_rng(seed).random((rounds, len(clients))) < probability
        away = {name: _intervals(drawn[:, index].tolist()) for index, name in enumerate(clients)}
        return cls(schedule, {name: spans for name, spans in away.items() if spans})

    @property
    def name(self) -> str:
        """The schedule's, ``with dropouts``."""
        return f"{self.schedule.name} with dropouts"

    @property
    def max_rounds(self) -> int | None:
        """The schedule's."""
        return rounds_limit(self.schedule)

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """The schedule's events among the clients that are there."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same where others say of some clients that they are away."""
        unknown = [name for name in self.away if name not in attendance.clients]
        if unknown:
            raise ValueError(f"dropouts: no clients {unknown}; there are {list(attendance.clients)}")
        attendance = attendance.without(self.away)
        if isinstance(self.schedule, Interruptible):
            return self.schedule.attended(attendance, round_index)
        return _without_absent(self.schedule, attendance, round_index)


def _without_absent(schedule: Schedule, attendance: Attendance, round_index: int) -> Iterator[Event]:
    """What is left of a schedule that knows of no absences."""

    def was_sent(client: str) -> bool:
        """Whether the schedule has sent q to a client since it came back, or never missed it."""
        since = attendance.since(client, round_index)
        earlier = (event for index in range(since, round_index) for event in schedule.events(clients, index))
        return since == 0 or any(isinstance(event, Dispatch) and client in event.clients for event in earlier)

    clients = attendance.clients
    present = attendance.present(round_index)
    reached = {client for client in present if was_sent(client)}
    for event in schedule.events(clients, round_index):
        names = tuple(client for client in event.clients if client in present)
        if isinstance(event, Dispatch):
            reached.update(names)
        else:
            names = tuple(client for client in names if client in reached)
        if names:
            yield replace(event, clients=names)


def _checked(name: str, spans: Sequence[Interval]) -> tuple[Interval, ...]:
    if any(isinstance(span, int) or len(span) != 2 for span in spans):
        raise ValueError(f"Dropouts: client {name!r} is away over intervals [(start, stop), ...], got {spans!r}")
    intervals = tuple(sorted((start, stop) for start, stop in spans))
    for start, stop in intervals:
        if not (isinstance(start, int) and isinstance(stop, int) and 0 <= start < stop):
            raise ValueError(f"dropouts of client {name!r}: ({start}, {stop}) needs whole numbers 0 <= start < stop")
    for earlier, later in pairwise(intervals):
        if later[0] < earlier[1]:
            raise ValueError(f"dropouts of client {name!r}: the intervals {earlier} and {later} overlap")
    return intervals


def _intervals(away: Sequence[bool]) -> list[Interval]:
    """Runs of absences as intervals.

    >>> _intervals([True, False, True, True])
    [(0, 1), (2, 4)]
    """
    padded = [False, *away, False]
    starts = [index for index in range(len(away)) if padded[index + 1] and not padded[index]]
    stops = [index + 1 for index in range(len(away)) if padded[index + 1] and not padded[index + 2]]
    return list(zip(starts, stops, strict=True))
