"""A few clients a round, drawn at random."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pvi.schedules.attendance import Attendance
from pvi.schedules.draws import check_seed, permuted
from pvi.schedules.latency import Latency, frozen
from pvi.schedules.protocol import Event
from pvi.schedules.replay import Replay
from pvi.schedules.waves import in_waves


@dataclass(frozen=True)
class RandomSubset:
    """Each round ``size`` clients, drawn without replacement, all at once from the same q.

    ``latency``: each client's seconds, see :data:`~pvi.schedules.Latency`; a round lasts as long as the slowest client
    drawn.

    >>> list(RandomSubset(size=2).events(("a", "b", "c"), 0))
    [Dispatch(clients=('a', 'c'), time=0.0), Collect(clients=('a', 'c'), time=1.0)]
    """

    size: int
    seed: int = 0
    latency: Latency = None

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 1:
            raise ValueError(f"size must be a whole number of clients, at least 1, got {self.size!r}")
        check_seed(self.seed)
        object.__setattr__(self, "latency", frozen(self.latency))

    @property
    def name(self) -> str:
        """``random-subset``."""
        return "random-subset"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """One dispatch, one collection; raises ``ValueError`` where ``size`` exceeds the number of clients."""
        return self.attended(Attendance(tuple(clients)), round_index)

    def attended(self, attendance: Attendance, round_index: int) -> Iterator[Event]:
        """The same with a subset of the clients that are there; all of them where fewer than ``size`` are."""
        if self.size > len(attendance.clients):
            there = len(attendance.clients)
            raise ValueError(
                f"a random subset of {self.size} clients: there are only {there}; take at most {there}, or leave it "
                "out for all: it is clients_per_round of an algorithm, else the schedule's size (--subset-size)"
            )
        return in_waves(self._replay, self._subset, self.latency, attendance, round_index)

    def _subset(self, attendance: Attendance, round_index: int) -> list[tuple[str, ...]]:
        """The first of a random order: a client that is away changes nothing for those drawn before it."""
        present = attendance.present(round_index)
        order = [client for client in permuted(attendance.clients, self.seed, round_index) if client in present]
        drawn = set(order[: self.size])
        return [tuple(client for client in present if client in drawn)] if drawn else []

    @cached_property
    def _replay(self) -> Replay[Fraction]:
        return Replay()
