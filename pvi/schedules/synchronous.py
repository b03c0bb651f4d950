"""All clients at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pvi.schedules.attendance import Attendance
from pvi.schedules.latency import Latency, frozen
from pvi.schedules.protocol import Event
from pvi.schedules.replay import Replay
from pvi.schedules.waves import in_waves


@dataclass(frozen=True)
class Synchronous:
    """All clients at once from the same q; needs damping below 1 unless the model is conjugate.

    ``latency``: each client's seconds, see :data:`~pvi.schedules.Latency`; a round lasts as long as its slowest client.

    >>> list(Synchronous(latency=[1.0, 3.0]).events(("a", "b"), 0))
    [Dispatch(clients=('a', 'b'), time=0.0), Collect(clients=('a', 'b'), time=3.0)]
    """

    latency: Latency = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", frozen(self.latency))

    @property
    def name(self) -> str:
        """``synchronous``."""
        return "synchronous"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """One dispatch, one collection."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same among the clients that are there; nobody waits for the others."""
        return in_waves(self._replay, _all, self.latency, attendance, round_index)

    @cached_property
    def _replay(self) -> Replay[Fraction]:
        return Replay()


def _all(attendance: Attendance, round_index: int) -> list[tuple[str, ...]]:
    present = attendance.present(round_index)
    return [present] if present else []
