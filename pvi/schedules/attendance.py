"""Who is there in which round."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from pvi.schedules.protocol import Event

Interval = tuple[int, int]
"""Rounds start <= r < stop, from 0."""


@dataclass(frozen=True)
class Attendance:
    """All clients of a run, and the intervals for which some are away.

    >>> Attendance(("a", "b"), (("a", ((1, 3),)),)).present(2)
    ('b',)
    """

    clients: tuple[str, ...]
    away: tuple[tuple[str, tuple[Interval, ...]], ...] = ()

    def without(self, away: Mapping[str, Sequence[Interval]]) -> "Attendance":
        """The same with further absences."""
        return replace(self, away=(*self.away, *((name, tuple(intervals)) for name, intervals in away.items())))

    def present(self, round_index: int) -> tuple[str, ...]:
        """The clients that are there in a round, in the order of the clients."""
        absent = {
            name for name, intervals in self.away if any(start <= round_index < stop for start, stop in intervals)
        }
        return tuple(client for client in self.clients if client not in absent)

    def since(self, client: str, round_index: int) -> int:
        """The round in which a client that is there came back for the last time; 0 where it never left."""
        stops = [stop for name, intervals in self.away if name == client for _, stop in intervals]
        return max((stop for stop in stops if stop <= round_index), default=0)


@runtime_checkable
class Interruptible(Protocol):
    """A schedule that plays absences itself; see :class:`~pvi.schedules.Dropouts` for those that do not."""

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The events of a round among the clients that are there; an update in flight of one that leaves is lost."""
