"""What a schedule is: one round turned into events.

:class:`Dispatch` sends the newest q to some clients, :class:`Collect` takes their updates, all computed against the q
they were sent, and applies them together. Synchronous, sequential and asynchronous runs differ in nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Dispatch:
    """The newest q goes to these clients; ``time`` in simulated seconds since the start of the run."""

    clients: tuple[str, ...]
    time: float = 0.0


@dataclass(frozen=True)
class Collect:
    """These clients' updates arrive and are applied together; ``time`` as in :class:`Dispatch`.

    Where ``asked`` is given the clients all work, and keep what they keep, but only those asked send their updates.
    """

    clients: tuple[str, ...]
    time: float = 0.0
    asked: tuple[str, ...] | None = field(default=None, repr=False)


Event = Dispatch | Collect


class Schedule(Protocol):
    """Yields the events of one round.

    Stateless: the events depend on the clients and the round alone, so that a run can be resumed anywhere. A client
    may be collected in a later round than it was sent q, or not at all.
    """

    @property
    def name(self) -> str:
        """For histories and logs."""

    def events(self, clients: Sequence[str], round_index: int) -> Iterator[Event]:
        """The events of round ``round_index`` (from 0) over the clients by name."""


@runtime_checkable
class Limited(Protocol):
    """A schedule that has events in its first rounds only; others need no such attribute."""

    @property
    def max_rounds(self) -> int | None:
        """Rounds after which nothing happens; ``None``: no limit."""


def rounds_limit(schedule: Schedule) -> int | None:
    """The number of rounds after which a schedule yields nothing; ``None`` where there is no such number."""
    return schedule.max_rounds if isinstance(schedule, Limited) else None


def is_synchronous(schedule: Schedule, clients: Sequence[str], round_index: int) -> bool:
    """Whether a round sends one q to all clients and applies all their updates together."""
    events = list(schedule.events(clients, round_index))
    kinds = [(type(event), sorted(event.clients)) for event in events]
    everyone = all(isinstance(event, Dispatch) or event.asked is None for event in events)
    return everyone and kinds == [(Dispatch, sorted(clients)), (Collect, sorted(clients))]
