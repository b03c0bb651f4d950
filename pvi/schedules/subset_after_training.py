"""Everybody works, a few are asked for their updates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pvi.schedules.attendance import Attendance
from pvi.schedules.draws import check_seed, permuted
from pvi.schedules.latency import Latency, frozen
from pvi.schedules.protocol import Collect, Event
from pvi.schedules.synchronous import Synchronous


@dataclass(frozen=True)
class SubsetAfterTraining:
    """Each round all clients work from the same q, then ``size`` of them, drawn at random, send their updates.

    All of them where there are no more than ``size``. Who is not asked keeps what it has learned for itself (Zhang et
    al. 2022, algorithm 1). ``latency`` as in :class:`~pvi.schedules.Synchronous`.

    >>> dispatch, collect = SubsetAfterTraining(size=2).events(("a", "b", "c"), 0)
    >>> collect.clients, collect.asked
    (('a', 'b', 'c'), ('a', 'c'))
    """

    size: int
    seed: int = 0
    latency: Latency = None

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 1:
            raise ValueError(f"a subset (size) is a whole number of clients, at least 1, got {self.size!r}")
        check_seed(self.seed)
        object.__setattr__(self, "latency", frozen(self.latency))

    @property
    def name(self) -> str:
        """``subset-after-training``."""
        return "subset-after-training"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """One dispatch to all, one collection."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same with a subset of the clients that are there."""
        order = list(permuted(attendance.clients, self.seed, round_index))
        for event in self._everybody.attended(attendance, round_index):
            present = set(event.clients)
            drawn = set([client for client in order if client in present][: self.size])
            if isinstance(event, Collect) and len(drawn) < len(present):
                yield replace(event, asked=tuple(client for client in event.clients if client in drawn))
            else:
                yield event

    @cached_property
    def _everybody(self) -> Synchronous:
        return Synchronous(self.latency)
