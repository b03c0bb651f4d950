"""In which order clients are visited.

A schedule turns one round into events: :class:`Dispatch` sends the newest q to some clients, :class:`Collect` takes
their updates, all computed against the q they were sent, and applies them together. Synchronous, sequential and
asynchronous runs differ in nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Dispatch(NamedTuple):
    """The newest q goes to these clients."""

    clients: tuple[str, ...]


class Collect(NamedTuple):
    """These clients' updates arrive and are applied together."""

    clients: tuple[str, ...]


Event = Dispatch | Collect


class Schedule(Protocol):
    """Yields the events of one round; every dispatched client is collected before the run ends."""

    @property
    def name(self) -> str:
        """For histories and logs."""

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """The events of round ``round_index`` (from 0) over the clients by name."""


@dataclass(frozen=True)
class Synchronous:
    """All clients at once from the same q; needs damping below 1 unless the model is conjugate.

    >>> list(Synchronous().events(("a", "b"), 0))
    [Dispatch(clients=('a', 'b')), Collect(clients=('a', 'b'))]
    """

    @property
    def name(self) -> str:
        """``synchronous``."""
        return "synchronous"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """One dispatch, one collection."""
        yield Dispatch(tuple(clients))
        yield Collect(tuple(clients))


@dataclass(frozen=True)
class Sequential:
    """One client after the other, each from the newest q; a round is one pass over all clients.

    >>> list(Sequential().events(("a", "b"), 0))[:2]
    [Dispatch(clients=('a',)), Collect(clients=('a',))]
    """

    @property
    def name(self) -> str:
        """``sequential``."""
        return "sequential"

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """A dispatch and a collection a client."""
        for client in clients:
            yield Dispatch((client,))
            yield Collect((client,))


SCHEDULES: dict[str, type[Synchronous] | type[Sequential]] = {
    "synchronous": Synchronous,
    "sequential": Sequential,
}


def resolve_schedule(schedule: Schedule | str) -> Schedule:
    """A schedule by name, or the object itself; raises ``ValueError`` for an unknown name."""
    if not isinstance(schedule, str):
        return schedule
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    return SCHEDULES[schedule]()
