"""Every client once, and never again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pvi.schedules.attendance import Attendance
from pvi.schedules.latency import Latency, frozen
from pvi.schedules.protocol import Event
from pvi.schedules.sequential import Sequential


@dataclass(frozen=True)
class SinglePass:
    """One sequential pass without revisits: online variational inference, as in variational continual learning.

    ``latency`` as in :class:`~pvi.schedules.Sequential`.

    >>> [len(list(SinglePass().events(("a", "b"), index))) for index in range(3)]
    [4, 0, 0]
    """

    latency: Latency = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", frozen(self.latency))

    @property
    def name(self) -> str:
        """``single-pass``."""
        return "single-pass"

    @property
    def max_rounds(self) -> int:
        """1."""
        return 1

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """A dispatch and a collection a client in round 0; nothing later."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same among the clients that are there in round 0; the others are never visited."""
        return self._pass.attended(attendance, round_index) if round_index == 0 else iter(())

    @cached_property
    def _pass(self) -> Sequential:
        return Sequential(latency=self.latency)
