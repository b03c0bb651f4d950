"""Rounds made of waves: the clients of a wave get the same q, and the server waits for the slowest of them."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from pvi.schedules.attendance import Attendance
from pvi.schedules.latency import Latency, by_name
from pvi.schedules.protocol import Collect, Dispatch, Event
from pvi.schedules.replay import Played, Replay

Waves = Callable[[Attendance, int], Sequence[tuple[str, ...]]]
"""The waves of a round, none of them empty, over the clients that are there."""


def in_waves(
    replay: Replay[Fraction], waves: Waves, latency: Latency, attendance: Attendance, round_index: int
) -> Iterator[Event]:
    """A dispatch and a collection a wave; a round starts when the one before has ended."""
    durations = by_name(latency, attendance.clients)

    def play(now: Fraction, index: int) -> Played[Fraction]:
        events: list[Event] = []
        for wave in waves(attendance, index):
            events.append(Dispatch(wave, float(now)))
            now += max(durations[client] for client in wave)
            events.append(Collect(wave, float(now)))
        return tuple(events), now

    return iter(replay.events(attendance, Fraction(0), play, round_index))
